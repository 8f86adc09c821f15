"""Small parts of asyncio that Kubernetes clients need: backoff, a notification, a work queue.

No module here depends on Kubernetes.
"""
