"""The path from the cloud to a watch: a reflector fills a store, a projection filters it, a view serves it.

No HTTP server and no disk.
"""
