"""Tables of rows that are written behind their owners, on a disk that may fail."""
