"""One parsed request: its caller, its read, its route, and the types of its answer."""
