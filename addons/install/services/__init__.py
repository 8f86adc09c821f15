"""The services of a node, and the conditions for which an installation waits."""
