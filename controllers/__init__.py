"""The cloud side: controllers that keep pools, leaders, triggers and service grids, and the process that runs them.

Here may live what reads and writes the cluster for all hubs. It imports `kube`, and nothing of `addons` or mitmproxy.
"""
