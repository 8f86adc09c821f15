"""Runs client programs of several ecosystems directly at kube-apiserver and through a hub, and compares their results.
"""
