"""Helpers of the tests of `kube/`: recorded answers, toy clients, judges."""
