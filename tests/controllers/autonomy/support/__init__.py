"""Helpers of the tests of the duty `autonomy`."""
