"""The built-in filters, one in each module, and the code that the endpoint filters share."""
