"""One copy of the cloud for a node pool: the leader, the server that this node follows, and the peer port."""
