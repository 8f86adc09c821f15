"""Tests of `controllers/grids/`."""
