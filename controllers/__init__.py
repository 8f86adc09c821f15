"""The cloud side: controllers of pools, leaders, triggers and service grids, and the process that runs them.

Code that reads and writes the cluster for all hubs belongs here. It imports `kube`, and nothing of `addons` or
mitmproxy.
"""
