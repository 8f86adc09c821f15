"""Tests of `addons/ui/flows/`."""
