"""Tests of `addons/ui/page/`."""
