"""A real kubeadm node with systemd and containers, and its cloud, in namespaces of this machine: `scripts/node`.

This package builds programs, userland and images, boots machines, connects their network, and makes a cluster of them.
It contains nothing of the product.
"""
