"""Tests of the bounds on sources and views."""
