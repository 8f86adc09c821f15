"""Rendering of bindings into a workload: one pure function, the record that undoes it, and the fields that it sets."""
