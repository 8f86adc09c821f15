"""Runs Kubernetes' own end-to-end tests through a hub: the specs, the paths to the API, and the outcomes."""
