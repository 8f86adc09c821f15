"""Moves the clocks of an instance: of its nodes' hub, kubelet and containers, and of its control plane.

Nothing here sets the machine's clock, which all that runs on it shares: each program is given one of its own.
"""
