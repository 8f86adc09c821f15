"""Installs, upgrades and removes hubs on labelled nodes, by a Job on each node, in waves of a pool."""
