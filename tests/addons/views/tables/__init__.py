"""Tests of `addons/views/tables`."""
