"""Kubernetes' own end-to-end tests through a hub: which specs, by which ways, and with what outcome."""
