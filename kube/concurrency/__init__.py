"""Small pieces of asyncio that Kubernetes clients need: backoff, a repeatable wake-up, a work queue. Nothing of
Kubernetes itself.
"""
