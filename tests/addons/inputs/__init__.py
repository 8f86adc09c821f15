"""Tests of `addons/inputs/`."""
