"""Tests of the deployment: the chart, the manifests made from it, and the images."""
