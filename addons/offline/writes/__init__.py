"""Writes that the node takes while the cloud is gone, and the journal that replays them."""
