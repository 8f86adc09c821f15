"""Tests of `addons/offline/writes/`."""
