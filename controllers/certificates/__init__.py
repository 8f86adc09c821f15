"""A controller that approves and denies the serving certificates that hubs ask the cluster for."""
