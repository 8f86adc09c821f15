"""How much sources and views may hold, and what they may cost: for each identity, together, and without a client."""
