"""Tests of `controllers/certificates/`."""
