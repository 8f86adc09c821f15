"""Tests of `kube/disk/`."""
