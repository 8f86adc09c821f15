"""Helpers for tests of `addons/`: parts of a hub, with fakes for the other parts."""
