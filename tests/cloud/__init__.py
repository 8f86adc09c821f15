"""The test clouds: a real Kubernetes control plane with its real clients, and the link that a hub reaches it
by.

What lives here may start processes, open sockets on loopback and write below a temporary folder. Nothing of
it is imported by the product, and nothing here imports `addons` or `controllers`.
"""
