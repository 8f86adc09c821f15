"""Helpers for the tests of `kube/`: recorded responses, toy clients, independent checks."""
