"""Bounds what a client, an address and a listener may hold, ask for and leave unread."""
