"""What `scripts/demo` shows: `program` tells the story, `cluster` is its cloud, and `clients` sends its requests."""
