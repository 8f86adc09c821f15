"""Hubs for the nodes that have a label: a Job on each node installs one, or removes it, in waves of a pool."""
