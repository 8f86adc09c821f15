"""Tests of `addons/startup`."""
