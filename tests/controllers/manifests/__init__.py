"""Tests of the product's manifests on a real API server."""
