"""Controllers that keep the members of node pools and what their nodes inherit."""
