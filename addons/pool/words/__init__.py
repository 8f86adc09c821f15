"""What the hubs of a pool tell each other of their pods while the cloud is away."""
