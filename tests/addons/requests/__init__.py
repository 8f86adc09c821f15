"""Tests of `addons/requests/`."""
