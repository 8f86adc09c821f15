"""Helpers for tests of filters: objects to filter, and checks of the results."""
