"""The tests: each folder mirrors a room of the sources; `tests/cloud` starts the API servers they use."""
