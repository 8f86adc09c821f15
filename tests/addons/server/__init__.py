"""Tests of `addons/server/`."""
