"""Fuzz targets: each feeds made-up bytes to code that reads input of others. `scripts/fuzz` runs them.

A target is a module with `seeds()`, inputs to begin with, and `run(data)`, which raises when the product breaks a
promise. Targets know nothing of the fuzzer, so the suite runs each one over its seeds.
"""
