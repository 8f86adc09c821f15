"""Helpers of the tests of a whole hub: its process, raw clients, outages."""
