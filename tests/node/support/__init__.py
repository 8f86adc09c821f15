"""Helpers for tests on a real node: commands from the docs, hub and manager, and pods that send requests."""
