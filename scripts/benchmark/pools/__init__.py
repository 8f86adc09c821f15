"""The loads of `scripts/bench --pool`."""
