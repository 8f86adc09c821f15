"""Counts the bytes of requests' bodies that the hub holds, over all connections."""

from __future__ import annotations

from kube.errors import StatusError, entity_too_large, too_many_requests

MAX_BODY = 3 * 1024 * 1024
"""Bytes of a request's body that the hub collects: as much as kube-apiserver takes."""
MAX_COLLECTED = 64 * 1024 * 1024
"""Bytes of all requests' bodies that the hub holds at one time."""
RETRY_AFTER = 1
"""Seconds; a body is held until its request is answered, mostly for milliseconds."""


class HeldBodies:
    """The sum that all requests share."""

    def __init__(self) -> None:
        self.size = 0

    def resize(self, held: int, wanted: int) -> StatusError | None:
        """Count `wanted` bytes for a request that held `held`; the reason why it may not have them."""
        if wanted > MAX_BODY:
            return entity_too_large(f"limit is {MAX_BODY}")
        if wanted > held and self.size + wanted - held > MAX_COLLECTED:
            return too_many_requests("the hub holds too many bodies of requests", RETRY_AFTER)
        self.size += wanted - held
        return None


held_bodies = HeldBodies()
"""Those of this process."""
