"""Tests of `kube/store/`."""
