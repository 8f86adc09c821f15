"""Tests of `kube/concurrency/`."""
