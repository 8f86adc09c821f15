"""Tests of `addons/ui/`."""
