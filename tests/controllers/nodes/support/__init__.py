"""Helpers of the tests of the duty `nodes`."""
