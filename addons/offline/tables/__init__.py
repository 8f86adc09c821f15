"""Tables of rows that are written asynchronously, on a disk that may fail."""
