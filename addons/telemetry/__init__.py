"""What the hub tells of itself to machines: metrics. Imports nothing of ours."""
