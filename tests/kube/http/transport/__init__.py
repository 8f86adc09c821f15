"""Tests of `kube/http/transport/`."""
