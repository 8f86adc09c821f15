"""The services of a node, and what an installation waits for."""
