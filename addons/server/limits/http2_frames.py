"""Splits HTTP/2 input into frames, limits the frames per step, and rejects frames that are too large."""

from __future__ import annotations

from typing import Any

from h2.settings import SettingCodes
from hpack import Encoder

from addons.telemetry import metrics

REQUESTS_PER_STEP = 4
"""Maximum requests of one HTTP/2 connection that are handled in one step."""
MAX_FRAME = 16 * 1024
"""Maximum bytes of a frame: HTTP/2's default (RFC 9113, 4.2)."""
MAX_HEAD = 256 * 1024
"""Maximum compressed bytes of one head: no more than its headers may have uncompressed."""
HUFFMAN_LIMIT = 2048
"""Maximum bytes of a header value in a head that is sent Huffman-coded, which takes 0.5 ms then. A service account's
token has some 1,200.
"""
MAX_TABLE = 4096
"""Maximum bytes of a connection's HPACK table for heads that the hub sends: HTTP/2's default."""
PREFACE = 24
"""Bytes of a client's connection preface (RFC 9113, 3.4)."""
_FRAMES_PER_REQUEST = 40
"""Number of PING, SETTINGS or WINDOW_UPDATE frames that cost as much as one request."""
_FRAME_HEADER = 9
"""Bytes of a frame's header: its length, type, flags and stream (RFC 9113, 4.1)."""
_HEADERS, _SETTINGS, _CONTINUATION = 1, 4, 9
_ACK, _END_HEADERS = 1, 4
_SETTING_SIZE = 6
_KNOWN_SETTINGS = frozenset(int(code) for code in SettingCodes)


class FrameTooLarge(Exception):
    """Raised for a frame or a head that is larger than its bound. The connection closes."""


class Frames:
    """Extracts complete frames from received bytes. h2 would check a frame's size only after the whole frame has
    arrived.
    """

    def __init__(self) -> None:
        self._has_preface = False
        self._head_size = 0
        """Compressed bytes so far of the incomplete head."""

    def next_frames(self, received: bytearray) -> tuple[bytes, bool]:
        """Remove the frames for one step from `received`, and return them, with whether more input can be handled.
        FrameTooLarge beyond a bound."""
        at, requests, taken = 0, 0.0, bytearray()
        if not self._has_preface:
            if len(received) < PREFACE:
                return b"", False
            self._has_preface, at = True, PREFACE
            taken += received[:PREFACE]
        while at + _FRAME_HEADER <= len(received) and requests < REQUESTS_PER_STEP:
            length, kind, flags = int.from_bytes(received[at : at + 3]), received[at + 3], received[at + 4]
            self._check(length, kind, flags)
            end = at + _FRAME_HEADER + length
            if end > len(received):
                break
            frame = received[at:end]
            taken += _without_unknown(frame) if kind == _SETTINGS and not flags & _ACK else frame
            if kind in (_HEADERS, _CONTINUATION):
                self._head_size = 0 if flags & _END_HEADERS else self._head_size + length
            requests += 1 if kind == _HEADERS else 1 / _FRAMES_PER_REQUEST
            at = end
        del received[:at]
        return bytes(taken), requests >= REQUESTS_PER_STEP and len(received) >= _FRAME_HEADER

    def _check(self, length: int, kind: int, flags: int) -> None:
        if length > MAX_FRAME:
            raise _too_large(f"a frame of {length} bytes, more than {MAX_FRAME}")
        if kind in (_HEADERS, _CONTINUATION) and self._head_size + length > MAX_HEAD:
            raise _too_large(f"a head of more than {MAX_HEAD} bytes")


def _without_unknown(frame: bytearray) -> bytes:
    """Return a SETTINGS frame without unknown settings (RFC 9113, 6.5.2). h2 stores each of them: 65,000 took 56 MB."""
    if (len(frame) - _FRAME_HEADER) % _SETTING_SIZE:
        return bytes(frame)  # malformed: h2 reports it
    settings = [
        bytes(frame[at : at + _SETTING_SIZE]) for at in range(_FRAME_HEADER, len(frame), _SETTING_SIZE)
    ]
    known = b"".join(setting for setting in settings if int.from_bytes(setting[:2]) in _KNOWN_SETTINGS)
    return len(known).to_bytes(3) + bytes(frame[3:_FRAME_HEADER]) + known


def _too_large(what: str) -> FrameTooLarge:
    metrics.CONNECTIONS_REFUSED.labels("frame").inc()
    return FrameTooLarge(what)


class HeadEncoder(Encoder):
    """Sends a head with a long value without Huffman coding. hpack's coding takes quadratic time: 0.5 s for 60 KB.

    The table of sent heads has at most MAX_TABLE bytes, also for a client that allows 4 GiB: hpack stores the table as
    long as the connection is open, and searches it for each field.
    """

    @property
    def header_table_size(self) -> int:
        return int(self.header_table.maxsize)

    @header_table_size.setter
    def header_table_size(self, value: int) -> None:
        self.header_table.maxsize = min(value, MAX_TABLE)
        if self.header_table.resized:
            # The next head sends the smallest and the last size (RFC 7541, 4.2). hpack would store every size that a
            # client ever sent.
            least = min([self.header_table.maxsize, *self.table_size_changes])
            self.table_size_changes[:] = [least, self.header_table.maxsize]

    def encode(self, headers: Any, huffman: bool = True) -> bytes:
        fields = list(headers)
        return super().encode(fields, huffman and all(len(field[1]) <= HUFFMAN_LIMIT for field in fields))
