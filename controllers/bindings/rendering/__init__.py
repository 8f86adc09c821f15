"""What bindings make of a workload: one pure function, the record by which it undoes itself, and what it may set."""
