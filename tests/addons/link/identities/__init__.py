"""Tests of `addons/link/identities/`."""
