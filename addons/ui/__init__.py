"""User interfaces: pages of the admin port, explanations, objects as YAML, the log of the link to the cloud."""
