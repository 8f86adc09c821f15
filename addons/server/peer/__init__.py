"""The peer port: what another hub of the pool may borrow."""
