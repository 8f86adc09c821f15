"""Tests on a real node with containers, and its cloud; those of the parts that need neither lie beside them."""
