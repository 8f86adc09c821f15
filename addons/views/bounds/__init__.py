"""Bounds the memory and cost of sources and views: for each identity, for all together, and for sources without a
client."""
