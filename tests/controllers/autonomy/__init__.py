"""Tests of `controllers/autonomy/`."""
