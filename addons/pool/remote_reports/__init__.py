"""Pod statuses that the hubs of a pool exchange while the cloud is away."""
