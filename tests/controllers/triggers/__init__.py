"""Tests of `controllers/triggers/`."""
