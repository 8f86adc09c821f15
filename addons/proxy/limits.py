"""How much a client may make the hub hold. `docs/security.md` says each number, and tests reach each one."""

from __future__ import annotations

MAX_HEADERS = 64 * 1024
"""Bytes of a request's headers, names and values. Kubernetes' clients send less than 8 KiB."""
MAX_TARGET = 8 * 1024
"""Bytes of a request's target, path and query. client-go keeps its selectors well below."""
MAX_BODY = 3 * 1024 * 1024
"""Bytes of a request's body that the hub collects: as much as kube-apiserver takes."""
MAX_COLLECTED = 64 * 1024 * 1024
"""Bytes of all requests' bodies that the hub holds at one time."""
MAX_DISCARDED = MAX_BODY
"""Bytes that the hub reads and drops after it has answered a request of HTTP/1.1, before it ends the connection."""
MAX_RESENDS = 5
"""How often a request goes out again because a server did not process it."""
