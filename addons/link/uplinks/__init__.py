"""The uplinks of this node, and the connections opened through them."""
