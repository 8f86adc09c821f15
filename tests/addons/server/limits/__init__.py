"""Tests of `addons/server/limits/`."""
