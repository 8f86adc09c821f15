"""Tests of `addons/offline/`."""
