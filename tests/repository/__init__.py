"""Tests of the tree itself: the rules of modules, documents, scripts and locks."""
