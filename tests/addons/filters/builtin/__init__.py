"""Tests of the hub's own filters."""
