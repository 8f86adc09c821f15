"""Tests of `addons/server/peer/`."""
