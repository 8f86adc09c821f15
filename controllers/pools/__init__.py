"""Controllers that count the nodes of a pool and put the pool's attributes on them."""
