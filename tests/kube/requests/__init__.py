"""Tests of `kube/requests/`."""
