"""Tests of `kube/schemas/`."""
