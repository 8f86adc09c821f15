"""From a store to a watch: a projection filters the store, a view serves it, a judge decides how a client resumes.

No HTTP server and no disk.
"""
