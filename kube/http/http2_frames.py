"""Holds peers of HTTP/2 to the size of frames and heads while these are still coming.

h2 looks at the size of a frame when all of the frame has come, and at that of a head when its last frame has. Until
then h2 holds the bytes: 16 MiB of a frame, and 64 frames of a head, for each connection.
"""

from __future__ import annotations

from h2.connection import H2Connection
from h2.exceptions import DenialOfServiceError, FrameTooLargeError

_LENGTH = 3
"""Bytes in which a frame begins with its length (RFC 9113, 4.1)."""


def check_incoming(connection: H2Connection, largest_frame: int, largest_head: int) -> None:
    """ProtocolError where the frame that has begun to come, or the head so far, has more bytes than it may have."""
    waiting = connection.incoming_buffer._data
    length = int.from_bytes(waiting[:_LENGTH]) if len(waiting) >= _LENGTH else 0
    if length > largest_frame:
        raise FrameTooLargeError(f"a frame of {length} bytes, more than {largest_frame}")
    head = sum(len(frame.data) for frame in connection.incoming_buffer._headers_buffer)
    if head > largest_head:
        raise DenialOfServiceError(f"a head of more than {largest_head} bytes")
