"""Tests of `controllers/bindings/`."""
