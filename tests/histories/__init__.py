"""Histories: whatever happens to a cloud, a node and its clients, each client ends with what the cloud has."""
