"""The demonstration of `scripts/demo`: `program` tells the story, `cluster` is its cloud, and `node` a node to look
at."""
