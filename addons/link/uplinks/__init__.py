"""The ways out of this node: its uplinks, how a connection is opened by one, and when a better way is used again."""
