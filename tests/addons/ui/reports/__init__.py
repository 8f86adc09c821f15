"""Tests of `addons/ui/reports/`."""
