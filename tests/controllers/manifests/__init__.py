"""Tests of what the product applies to a cluster, on a real API server."""
