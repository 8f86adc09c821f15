"""All published messages of Kubernetes' own kinds, and the conversion between protobuf and JSON. Loaded on first use.
Pure."""
