"""Writes that the cloud accepted, until copies and stored answers have them."""
