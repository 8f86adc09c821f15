"""Tests of `kube/tables/`."""
