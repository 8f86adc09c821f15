"""Tests of `addons.filters`, laid out as the sources are; `samples` has the objects and the world that they share."""
