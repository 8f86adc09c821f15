"""Helpers of the tests of the repository: its files and identifiers, and a stand-in for a machine."""
