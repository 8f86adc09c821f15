"""One copy of the cloud for a node pool: who leads, whom this node follows, and what the peer port serves to whom."""
