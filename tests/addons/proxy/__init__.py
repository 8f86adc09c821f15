"""Tests of `addons/proxy/`."""
