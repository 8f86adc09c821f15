"""Kubernetes' own end-to-end tests through a hub: which specs, on which paths to the API, and with what outcome."""
