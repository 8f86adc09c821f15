"""Controllers that choose the leader hubs of a pool, publish them, and give them their rights."""
