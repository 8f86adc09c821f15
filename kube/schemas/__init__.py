"""All messages of Kubernetes' own kinds, as published, and the JSON of what is protobuf. Loaded on first need. Pure."""
