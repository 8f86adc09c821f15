"""What the hub reports of itself: metrics and the log. Imports nothing of ours."""
