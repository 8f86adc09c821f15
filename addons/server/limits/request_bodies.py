"""Bounds of a request body: the time that a client has to send it, and the cost of HTTP/1.1 chunks.

h11 returns each chunk separately: a body in chunks of one byte blocked the event loop for seconds.
"""

from __future__ import annotations

MAX_CHUNK_LINE = 4 * 1024
"""Maximum bytes of a chunk's size line, and of all trailers: Go's server reads lines of at most this length."""
CHUNKS_PER_STEP = 500
"""Maximum chunks of one body that are handled in one step. Other clients run before the next step."""
CHUNK_LINE_TOO_LONG = "the size line of a chunk is too long"
BODY_TIME = 60.0
"""Seconds in which a client must send a body that the hub buffers: kube-apiserver's default for a request
(`--request-timeout`).
"""
