"""The servers of the cloud: which are up, which one is chosen, and TLS towards them."""
