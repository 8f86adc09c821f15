"""Tests of `addons/ui/attached`."""
