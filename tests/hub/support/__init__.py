"""Helpers for tests of a complete hub: its process, raw clients, outages."""
