"""Helpers for tests of the repository: its files and identifiers, and a fake machine."""
