"""Helpers for tests of the controller `autonomy`."""
