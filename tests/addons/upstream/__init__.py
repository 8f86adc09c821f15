"""Tests of `addons/upstream/`."""
