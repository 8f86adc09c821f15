"""Watches encoded as differences: the records of a stream, their writer and their reader. Pure."""
