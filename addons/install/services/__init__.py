"""The services of a node, and the states that an installation awaits."""
