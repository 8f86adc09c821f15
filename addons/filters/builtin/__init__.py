"""The hub's own filters, one a module, and what those of endpoints share."""
