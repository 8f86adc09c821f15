"""Small parts of asyncio that Kubernetes clients need: backoff, a notification, a work queue.

Nothing here knows Kubernetes.
"""
