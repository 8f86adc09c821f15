"""All hubs of a cluster in one table: the status that each writes to its node's Lease, and its presentation."""
