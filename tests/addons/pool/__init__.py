"""Tests of `addons.pool`."""
