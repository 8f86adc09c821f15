"""Tests of `addons/rules/`."""
