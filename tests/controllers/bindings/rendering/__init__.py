"""Tests of `controllers/bindings/rendering/`."""
