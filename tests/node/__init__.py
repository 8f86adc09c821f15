"""Tests on a real node with containers, and its cloud; tests of its parts that need neither are beside them."""
