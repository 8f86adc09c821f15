"""The hub's identities towards servers: renewed credentials, and the certificate for kubelet."""
