"""Tests of `addons/proxy/interface`."""
