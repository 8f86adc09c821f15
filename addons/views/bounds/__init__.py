"""Bounds the memory and cost of sources and views: for each identity, together, and without a client."""
