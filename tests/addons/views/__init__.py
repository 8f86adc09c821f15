"""Tests of `addons/views/`."""
