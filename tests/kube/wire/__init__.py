"""Tests of `kube/wire/`."""
