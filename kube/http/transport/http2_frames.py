"""Holds peers of HTTP/2 to the size of frames and heads while these are still coming, and packs heads in bounded time.

h2 looks at the size of a frame when all of the frame has come, and at that of a head when its last frame has. Until
then h2 holds the bytes: 16 MiB of a frame, and 64 frames of a head, for each connection.
"""

from __future__ import annotations

from typing import Any

from h2.connection import H2Connection
from h2.exceptions import DenialOfServiceError, FrameTooLargeError
from hpack import Encoder

_LENGTH = 3
"""Bytes in which a frame begins with its length (RFC 9113, 4.1)."""

LONGEST_CODED = 2048
"""Bytes of a header's value up to which its head is packed by Huffman's code, which takes 0.5 ms then. A token of a
service account has some 1,200."""


class HeadEncoder(Encoder):
    """Sends a head with a long value as it is. hpack's time for Huffman's code is quadratic: 0.5 s for one of 60 KB."""

    def encode(self, headers: Any, huffman: bool = True) -> bytes:
        fields = list(headers)
        return super().encode(fields, huffman and all(len(each[1]) <= LONGEST_CODED for each in fields))


def check_incoming(connection: H2Connection, largest_frame: int, largest_head: int) -> None:
    """ProtocolError where the frame that has begun to come, or the head so far, has more bytes than it may have."""
    waiting = connection.incoming_buffer._data
    length = int.from_bytes(waiting[:_LENGTH]) if len(waiting) >= _LENGTH else 0
    if length > largest_frame:
        raise FrameTooLargeError(f"a frame of {length} bytes, more than {largest_frame}")
    head = sum(len(frame.data) for frame in connection.incoming_buffer._headers_buffer)
    if head > largest_head:
        raise DenialOfServiceError(f"a head of more than {largest_head} bytes")
