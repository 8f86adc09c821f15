"""Rendering of bindings into a workload: one pure function, the record by which it is undone, and the fields it
sets."""
