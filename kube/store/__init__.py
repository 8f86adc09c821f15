"""From a store to a watch: a projection filters the store, a view serves it, and `resumption` decides how a client
resumes.

Contains no HTTP server and no disk access.
"""
