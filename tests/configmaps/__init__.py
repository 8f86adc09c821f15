"""Tests of `configmaps`: the hub parses the shipped files as their comments say."""
