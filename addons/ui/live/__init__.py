"""Live displays of a running hub: a line for each request, and its flows."""
