"""Tests of `kube/objects/`."""
