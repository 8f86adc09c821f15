"""The peer port: the hub's services to other hubs of the pool."""
