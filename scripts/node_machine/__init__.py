"""A real node of kubeadm, with systemd and containers, and its cloud, in namespaces of this machine: `scripts/node`.

Nothing of the product lives here: what builds the programs, the userland and the images, what boots machines and
leads their network, and what makes a cluster of them.
"""
