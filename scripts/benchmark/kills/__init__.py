"""`scripts/bench --kills N`: kills hubs N times during many writes, while links to a real cloud fail and return.

Several nodes, each with its own link, are killed at different times. Each writer changes one object, and writes
increasing numbers with fields derived from them. An answered write counts as accepted, a failed one as possibly
accepted. The cloud's own watch, and the state at checkpoints, show what became of the writes.
"""
