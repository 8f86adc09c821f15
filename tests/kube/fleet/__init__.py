"""Tests of `kube.fleet`."""
