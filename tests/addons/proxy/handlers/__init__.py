"""Tests of `addons/proxy/handlers/`."""
