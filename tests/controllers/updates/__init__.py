"""Tests of the updates of DaemonSets' pods."""
