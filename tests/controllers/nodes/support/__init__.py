"""Helpers for tests of the controller `nodes`."""
