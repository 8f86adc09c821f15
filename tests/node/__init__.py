"""Tests on a real node with containers, and its cloud; next to them tests of its parts that need neither."""
