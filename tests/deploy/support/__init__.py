"""Helpers for tests of deployment: pods without a kubelet, booted nodes, charts."""
