"""Tests of `addons.pool.peers`."""
