"""Tests of `configmaps`: what users are given to edit must be read as its comments say."""
