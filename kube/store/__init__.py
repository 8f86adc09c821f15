"""From a store to a watch: a projection filters the store, a view serves it, a judge says what a client gets.

No HTTP server and no disk.
"""
