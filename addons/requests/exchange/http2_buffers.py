"""What a client's connection of HTTP/2 keeps: what waits for a window, heads to name again, settings, frames half come.

h2 and hpack keep all of it without a bound, or by one that is too wide for a thousand connections.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Any, Protocol

from h2.exceptions import DenialOfServiceError, FrameTooLargeError
from h2.frame_buffer import FrameBuffer
from hpack import Encoder

from addons.telemetry import metrics

MAX_FRAME = 128 * 1024
"""Bytes of a frame, as mitmproxy tells each peer."""
MAX_HEAD = 256 * 1024
"""Bytes of the frames of one head, as they come: as many as its headers may have when they are unpacked."""
LENGTH = 3
"""Bytes in which a frame begins with its length (RFC 9113, 4.1)."""
LONGEST_CODED = 2048
"""Bytes of a header's value up to which its head is packed by Huffman's code, which takes 0.5 ms then. A token of a
service account has some 1,200."""
MAX_TABLE = 4096
"""Bytes of the heads that a connection remembers to name them again: as many as a client allows that says nothing."""


class WaitingPiece(Protocol):
    """What waits for a window."""

    @property
    def data(self) -> bytes: ...


class Backlog(deque[WaitingPiece]):
    """What waits for a stream's window, and its size in bytes."""

    def __init__(self, backlogs: Backlogs) -> None:
        super().__init__()
        self.size = 0
        self._backlogs = backlogs

    def append(self, piece: WaitingPiece) -> None:
        self._count(len(piece.data))
        super().append(piece)

    def appendleft(self, piece: WaitingPiece) -> None:
        self._count(len(piece.data))
        super().appendleft(piece)

    def popleft(self) -> WaitingPiece:
        piece = super().popleft()
        self._count(-len(piece.data))
        return piece

    def _count(self, size: int) -> None:
        self.size += size
        self._backlogs.size += size


class Backlogs(defaultdict[int, Backlog]):
    """The backlog of each stream of a connection, and what all of them have, in bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 0

    def __missing__(self, stream: int) -> Backlog:
        backlog = self[stream] = Backlog(self)
        return backlog

    def __setitem__(self, stream: int, backlog: Backlog) -> None:
        self.size += backlog.size
        super().__setitem__(stream, backlog)

    def pop(self, stream: int, *default: Any) -> Any:
        """As `dict.pop`; what the backlog holds counts no longer."""
        backlog = super().pop(stream, *default)
        if isinstance(backlog, Backlog):
            self.size -= backlog.size
        return backlog

    def clear(self) -> None:
        super().clear()
        self.size = 0


class HeadEncoder(Encoder):
    """Sends a head with a long value as it is. hpack's time for Huffman's code is quadratic: 0.5 s for one of 60 KB.

    It remembers MAX_TABLE bytes of heads, also for a client that allows 4 GiB: hpack keeps them for the connection's
    life, and searches all of them for each field.
    """

    @property
    def header_table_size(self) -> int:
        return int(self.header_table.maxsize)

    @header_table_size.setter
    def header_table_size(self, value: int) -> None:
        self.header_table.maxsize = min(value, MAX_TABLE)
        if self.header_table.resized:
            # The next head names these two (RFC 7541, 4.2). hpack keeps all that a client has ever said.
            least = min([self.header_table.maxsize, *self.table_size_changes])
            self.table_size_changes[:] = [least, self.header_table.maxsize]

    def encode(self, headers: Any, huffman: bool = True) -> bytes:
        fields = list(headers)
        return super().encode(fields, huffman and all(len(field[1]) <= LONGEST_CODED for field in fields))


class SettingValues(list[int]):
    """The values of a setting, the one in force first. h2 has a deque of each, 760 bytes: 10 KB for a connection."""

    __slots__ = ()

    def popleft(self) -> int:
        return self.pop(0)


def check_incoming(buffer: FrameBuffer) -> None:
    """ProtocolError where the frame that has begun to come, or the head so far, has more bytes than it may have.

    h2 looks at the size of a frame when all of the frame has come, and at that of a head when its last frame has.
    Until then h2 holds the bytes: 16 MiB of a frame, and 64 frames of a head, for each connection.
    """
    waiting = buffer._data
    length = int.from_bytes(waiting[:LENGTH]) if len(waiting) >= LENGTH else 0
    if length > MAX_FRAME:
        metrics.CONNECTIONS_REFUSED.labels("frame").inc()
        raise FrameTooLargeError(f"a frame of {length} bytes, more than {MAX_FRAME}")
    head = sum(len(frame.data) for frame in buffer._headers_buffer)
    if head > MAX_HEAD:
        metrics.CONNECTIONS_REFUSED.labels("frame").inc()
        raise DenialOfServiceError(f"a head of more than {MAX_HEAD} bytes")
