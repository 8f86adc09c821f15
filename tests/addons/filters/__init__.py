"""Tests of `addons.filters`, laid out as the sources are; `support` has the objects and the inputs that they share."""
