"""Tests of `addons.install.services`."""
