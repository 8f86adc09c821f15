"""Tests of `addons/link/`."""
