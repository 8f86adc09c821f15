"""Who the hub is towards servers: renewed credentials, callers with tokens of their own, and what kubelet is shown."""
