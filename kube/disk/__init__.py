"""The database on disk: written in batches by one thread, checked as it is read, set aside where it is damaged."""
