"""What `scripts/demo` shows: `program` tells the story, `cluster` is its cloud, and `node` a node to look at."""
