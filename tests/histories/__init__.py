"""Histories: after any faults of cloud, node and clients, each client ends with the cloud's state."""
