"""Tests of `addons/certificates/`."""
