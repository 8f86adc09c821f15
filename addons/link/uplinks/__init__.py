"""The uplinks of this node, and how a connection is opened through one."""
