"""Tests of `kube/http/`."""
