"""Writes that the cloud took, until all that is kept has them."""
