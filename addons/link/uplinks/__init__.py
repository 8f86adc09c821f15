"""The ways out of this node: its uplinks, and how a connection is opened by one."""
