"""Ways to the cloud that hubs of a pool share: borrowed while a node's own is gone, and lent to nodes without one."""
