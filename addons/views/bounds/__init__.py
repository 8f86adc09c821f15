"""Bounds what sources and views may hold and cost: for each identity, together, and without a client."""
