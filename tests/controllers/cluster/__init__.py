"""Tests of `controllers/cluster/`."""
