"""Tests of `addons.server.clients`."""
