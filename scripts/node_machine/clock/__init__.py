"""Moves the clocks of an instance: of its nodes' hub, kubelet and containers, and of its control plane.

The kernel's clock, which all programs of this machine share, is never set: each program gets a faked one.
"""
