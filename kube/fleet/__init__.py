"""All hubs of a cluster in one table: what each says of itself, in its node's Lease, and what people see of that."""
