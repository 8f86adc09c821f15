"""The demonstration of `scripts/demo`.

`program` prints the steps, `cluster` is the cloud, and `node` a node for `--ui`.
"""
