"""Tests of `kube/differences/`."""
