"""Tests of `controllers/runtime/`."""
