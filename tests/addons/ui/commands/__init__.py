"""Tests of `addons/ui/commands/`."""
