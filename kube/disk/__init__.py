"""The database on disk. One thread writes it in batches, verifies each row that it reads, and moves a damaged file
aside."""
