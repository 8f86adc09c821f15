"""Gives filters their inputs: sources of Services, nodes and pools, the record of what was asked, and local health."""
