"""The hub's own filters, one a module, and the code that the endpoint filters share."""
