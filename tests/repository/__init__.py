"""Tests of the repository itself: rules for modules, docs, scripts and locks."""
