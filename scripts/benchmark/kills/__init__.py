"""`scripts/bench --kills N`: hubs killed N times during many writes, while links to a real cloud fail and return.

Several nodes, each with its own link, are killed at their own moments. A writer changes one object at a time and
counts: each write has the next number, and fields derived from it. An answered write counts as accepted, a broken one
as possibly accepted. The cloud's own watch and the state at checkpoints show the fate of the writes.
"""
