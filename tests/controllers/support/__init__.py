"""Helpers for the tests of `controllers/`: a scene, an oracle, a manager in its own process."""
