"""Bounds of a request's body: the time that a client has for one, and the cost of HTTP/1.1 chunks.

h11 hands out each chunk by itself: chunks of one byte held the event loop for seconds.
"""

from __future__ import annotations

MAX_CHUNK_LINE = 4 * 1024
"""Bytes of the line before a chunk, and of all trailers: as many as Go's own server reads of a line."""
CHUNKS_AT_ONCE = 500
"""Chunks of one body that are handled in one step; other clients come between, where there are more."""
CHUNK_LINE_TOO_LONG = "the line before a chunk of the body is too long"
BODY_TIME = 60.0
"""Seconds in which a client must send a body that the hub holds: kube-apiserver's limit for a request
(`--request-timeout`)."""
