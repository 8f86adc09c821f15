"""Controllers that elect the leader hubs of a pool, publish them, and grant hubs their rights."""
