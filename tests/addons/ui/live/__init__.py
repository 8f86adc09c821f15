"""Tests of `addons/ui/live`."""
