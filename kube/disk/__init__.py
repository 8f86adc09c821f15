"""The database on disk. One thread writes it in batches, checks what it reads, and sets a damaged one aside."""
