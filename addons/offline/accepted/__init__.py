"""Writes that the cloud accepted, stored until copies and stored answers contain them."""
