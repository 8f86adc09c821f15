"""Links to the cloud that hubs of a pool share: borrowed while a node's own link is down, and lent to other nodes."""
