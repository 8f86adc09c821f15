"""Helpers of the tests of updates."""
