"""Moves the clocks of an instance: of its nodes' hub, kubelet and containers, and of its control plane.

The machine's own clock, which everything on it shares, is never set: each program gets a faked one.
"""
