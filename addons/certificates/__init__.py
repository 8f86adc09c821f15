"""The certificates of the hub's own listeners."""
