"""Tests of the duty that gives labelled nodes a hub."""
