"""Frames of HTTP/2 (RFC 9113) for the hub's own client: splits bytes into complete frames, and builds frames."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct, pack

MAX_FRAME = 2**17
"""The most bytes of a frame that the peer may send."""
MAX_HEAD = 64 * 1024
"""The most bytes of one head's frames, and of its decoded fields. kube-apiserver's warnings take up to 4 KB."""
MAX_PARTS = 64
"""The most frames of one head."""
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


class FrameKind:
    """The frame types (RFC 9113, 6)."""

    DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
        range(10)
    )


class Setting:
    """The settings in use (RFC 9113, 6.5.2)."""

    TABLE_SIZE, ENABLE_PUSH, MAX_STREAMS, INITIAL_WINDOW, FRAME_SIZE = range(1, 6)


class FrameFlag:
    """The flags of frames."""

    END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20


class EndCode:
    """The error codes of streams and connections (RFC 9113, 7)."""

    NO_ERROR, PROTOCOL_ERROR, FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR = 0, 1, 3, 6
    REFUSED_STREAM, CANCEL, COMPRESSION_ERROR = 7, 8, 9


LARGEST_31_BITS = 2**31 - 1
"""The largest stream number, and the largest window."""

_FRAME = Struct(">HBBBL")
"""A frame header: length in three bytes, type, flags and stream number."""
_SETTING = Struct(">HL")
_NUMBER = Struct(">L")


class PeerError(Exception):
    """The peer has violated the protocol; `code` is the HTTP/2 error code."""

    def __init__(self, why: str, code: int = EndCode.PROTOCOL_ERROR) -> None:
        super().__init__(why)
        self.code = code


class FrameSplitter:
    """Splits incoming bytes into frames, and joins the frames of a head into one HEADERS frame."""

    def __init__(self) -> None:
        self._waiting = bytearray()
        """Buffered bytes of an incomplete frame."""
        self._head: tuple[int, int, list[bytes]] | None = None
        """Flags, stream number and parts of an incomplete head."""

    def read(self, data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
        """Yield type, flags, stream number and payload of each complete frame. PeerError for a malformed frame."""
        waiting = self._waiting
        waiting += data
        at, end = 0, len(waiting)
        try:
            while end - at >= _FRAME.size:
                high, low, kind, flags, number = _FRAME.unpack_from(waiting, at)
                length = high << 8 | low
                if length > MAX_FRAME:
                    raise PeerError(
                        f"a frame of {length} bytes, more than {MAX_FRAME}", EndCode.FRAME_SIZE_ERROR
                    )
                if end - at < _FRAME.size + length:
                    break
                at += _FRAME.size + length
                payload, number = bytes(waiting[at - length : at]), number & LARGEST_31_BITS
                if self._head is None and kind not in (FrameKind.HEADERS, FrameKind.CONTINUATION):
                    yield kind, flags, number, payload
                elif (joined := self._join(kind, flags, number, payload)) is not None:
                    yield FrameKind.HEADERS, *joined
        finally:
            del waiting[:at]

    def _join(self, kind: int, flags: int, number: int, payload: bytes) -> tuple[int, int, bytes] | None:
        """Return flags, stream number and header block of a complete head; None while it is incomplete."""
        if self._head is None:
            if kind == FrameKind.CONTINUATION:
                raise PeerError("CONTINUATION without HEADERS")
            first, stream, parts = flags, number, [_block(flags, payload)]
        else:
            first, stream, parts = self._head
            if kind != FrameKind.CONTINUATION or number != stream:
                raise PeerError("another frame within a header block")
            parts.append(payload)
        if sum(map(len, parts)) > MAX_HEAD or len(parts) > MAX_PARTS:
            raise PeerError(f"a header block of more than {MAX_HEAD} bytes, or {MAX_PARTS} frames")
        is_complete = bool(flags & FrameFlag.END_HEADERS)
        self._head = None if is_complete else (first, stream, parts)
        return (first, stream, b"".join(parts)) if is_complete else None


def frame(kind: int, flags: int, number: int, payload: bytes) -> bytes:
    """Build one frame."""
    size = len(payload)
    return _FRAME.pack(size >> 8, size & 0xFF, kind, flags, number) + payload


def head_frames(number: int, block: bytes, flags: int, largest: int) -> Iterator[bytes]:
    """Split a header block into frames of at most `largest` bytes."""
    kind = FrameKind.HEADERS
    while True:
        part, block = block[:largest], block[largest:]
        yield frame(kind, flags | (0 if block else FrameFlag.END_HEADERS), number, part)
        if not block:
            return
        kind, flags = FrameKind.CONTINUATION, 0


def packed(*numbers: int) -> bytes:
    """Pack integers of 32 bits each."""
    return pack(f">{len(numbers)}L", *numbers)


def number_of(payload: bytes) -> int:
    """Parse a payload that is one integer of 32 bits."""
    if len(payload) != _NUMBER.size:
        raise PeerError("a frame of the wrong size", EndCode.FRAME_SIZE_ERROR)
    return int.from_bytes(payload)


def packed_settings(settings: dict[int, int]) -> bytes:
    """Build the payload of SETTINGS."""
    return b"".join(_SETTING.pack(*item) for item in settings.items())


def settings_of(payload: bytes) -> Iterator[tuple[int, int]]:
    """Parse the payload of SETTINGS, in order."""
    if len(payload) % _SETTING.size:
        raise PeerError("malformed SETTINGS", EndCode.FRAME_SIZE_ERROR)
    return _SETTING.iter_unpack(payload)


def unpadded(flags: int, payload: bytes) -> bytes:
    """A frame's payload without padding."""
    if not flags & FrameFlag.PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise PeerError("a frame with more padding than bytes")
    return payload[1 : len(payload) - payload[0]]


def _block(flags: int, payload: bytes) -> bytes:
    """The header block in a HEADERS frame."""
    block = unpadded(flags, payload)
    if not flags & FrameFlag.PRIORITY:
        return block
    if len(block) < 5:
        raise PeerError("HEADERS without the priority that the flag says", EndCode.FRAME_SIZE_ERROR)
    return block[5:]
