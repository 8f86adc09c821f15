"""Keeps a store equal to the cloud: lists, watches, the choice of a server, and the check for a restored cloud."""
