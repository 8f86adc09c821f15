"""Tests of `addons/install`."""
