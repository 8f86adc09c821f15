"""What a hub says of itself: one function a report, which gives JSON for tools. Shell, page and consoles render it."""
