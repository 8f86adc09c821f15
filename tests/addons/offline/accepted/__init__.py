"""Tests of `addons/offline/accepted/`."""
