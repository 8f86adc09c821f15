"""Keeps a store equal to the cloud: list and watch, server selection, and detection of a restored cloud."""
