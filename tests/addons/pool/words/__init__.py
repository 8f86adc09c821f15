"""Tests of `addons.pool.words`."""
