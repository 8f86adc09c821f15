"""The way of rows to the disk: tables that are written behind their owners, and a disk that may fail."""
