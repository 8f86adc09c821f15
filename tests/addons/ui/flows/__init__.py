"""Flows as interfaces show them."""
