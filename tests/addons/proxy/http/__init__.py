"""Tests of `addons/proxy/http/`."""
