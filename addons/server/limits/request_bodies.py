"""Bounds of a request's body: the time that a client has for one, and what the chunks of HTTP/1.1 cost.

h11 hands out each chunk by itself: chunks of one byte held the event loop for seconds.
"""

from __future__ import annotations

MAX_CHUNK_LINE = 4 * 1024
"""Bytes of the line before a chunk, and of all trailers: as many as Go's own server reads of a line."""
CHUNKS_AT_ONCE = 500
"""Chunks of one body that are handled in one go; others go between, where there are more."""
CHUNK_LINE_TOO_LONG = "the line before a chunk of the body is too long"
BODY_TIME = 60.0
"""Seconds within which a client has sent the whole body that the hub holds: as long as kube-apiserver takes over a
request (`--request-timeout`)."""
