"""`scripts/bench --kills N`: hubs killed N times in a storm of writes, before a real cloud that comes and goes.

Several nodes, each with its own link, are killed at their own moments. A writer reports on one object at a time and
counts: each write has the next number, and fields that follow from it. What was answered counts as accepted, what broke
off may have been. The cloud's own watch and the state at checkpoints show what became of the writes.
"""
