"""Tests of `controllers/pools/`."""
