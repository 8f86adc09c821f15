"""Provides filters with inputs: sources of Services, nodes and pools, the record of inputs read, and local health."""
