"""Tests of `addons/link/uplinks/`."""
