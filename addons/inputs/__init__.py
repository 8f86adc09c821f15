"""Gives filters their inputs: sources of Services, nodes and pools, the record of asked inputs, and local health."""
