"""Tests of `kube/reflector/`."""
