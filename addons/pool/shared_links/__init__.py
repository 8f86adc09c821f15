"""Links to the cloud that hubs of a pool share: borrowed while a node's own is down, and lent to others."""
