"""What reads bytes that others wrote, fed with bytes that a fuzzer makes up: `scripts/fuzz` runs it.

A target is a module with `seeds()`, inputs to begin with, and `run(data)`, which raises when the product breaks a
promise. Targets know nothing of the fuzzer, so the suite runs each one over its seeds.
"""
