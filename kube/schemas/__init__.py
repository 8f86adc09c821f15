"""All messages of Kubernetes' own kinds, as published, and the JSON of protobuf objects. Loaded on first need. Pure."""
