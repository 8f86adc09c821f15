"""Tests of `configmaps`: the hub reads what users edit as its comments say."""
