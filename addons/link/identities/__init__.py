"""Who the hub is towards servers: renewed credentials, and what kubelet is shown."""
