"""Tests of the package `kube`, one module for each of its modules."""
