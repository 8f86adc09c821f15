"""Tests of `addons/offline/people/`."""
