"""Tests of `addons`, laid out as the sources are."""
