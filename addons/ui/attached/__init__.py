"""What a hub without an interface shows to one process that is attached, and holds for it."""
