"""Tests of `addons.pool.shared_links`."""
