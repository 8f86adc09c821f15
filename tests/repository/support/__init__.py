"""Helpers of the tests of the repository: its files and words, and a stand-in for a machine."""
