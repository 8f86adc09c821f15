"""Tests of `controllers/leaders/`."""
