"""Tests of `addons.pool.remote_reports`."""
