"""Tests of what is deployed: the chart, the manifests made from it, and the images."""
