"""Tests of `addons/offline/tables/`."""
