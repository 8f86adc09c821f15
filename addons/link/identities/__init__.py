"""The hub's identities towards servers: renewed credentials, and the one for kubelet."""
