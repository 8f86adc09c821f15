"""Splits HTTP/2 input into frames, limits the frames per step, and rejects frames that are too large."""

from __future__ import annotations

from typing import Any

from h2.settings import SettingCodes
from hpack import Encoder

from addons.telemetry import metrics

AT_ONCE = 4
"""Maximum requests of one HTTP/2 connection that are handled in one step."""
MAX_FRAME = 16 * 1024
"""Maximum bytes of a frame: HTTP/2's default (RFC 9113, 4.2)."""
MAX_HEAD = 256 * 1024
"""Maximum compressed bytes of one head: no more than its headers may have uncompressed."""
LONGEST_CODED = 2048
"""Maximum bytes of a header value in a head that is sent Huffman-coded, which takes 0.5 ms then. A service account's
token has some 1,200.
"""
MAX_TABLE = 4096
"""Maximum bytes of a connection's HPACK table for heads that the hub sends: HTTP/2's default."""
PREFACE = 24
"""Bytes of a client's connection preface (RFC 9113, 3.4)."""
_OTHERS = 40
"""Number of PING, SETTINGS or WINDOW_UPDATE frames that cost as much as one request."""
_HEAD = 9
"""Bytes of a frame's header: its length, type, flags and stream (RFC 9113, 4.1)."""
_HEADERS, _SETTINGS, _CONTINUATION = 1, 4, 9
_ACK, _END_HEADERS = 1, 4
_SETTING = 6
_KNOWN = frozenset(int(code) for code in SettingCodes)


class FrameTooLarge(Exception):
    """Raised for a frame or a head that is larger than its bound. The connection closes."""


class Frames:
    """Extracts complete frames from received bytes. h2 would check a frame's size only after the whole frame has
    arrived.
    """

    def __init__(self) -> None:
        self._is_greeted = False
        self._head = 0
        """Compressed bytes so far of the incomplete head."""

    def next_frames(self, came: bytearray) -> tuple[bytes, bool]:
        """Remove the frames for one step from `came`. Return them, and whether more input can be handled. FrameTooLarge
        beyond a bound.
        """
        at, requests, taken = 0, 0.0, bytearray()
        if not self._is_greeted:
            if len(came) < PREFACE:
                return b"", False
            self._is_greeted, at = True, PREFACE
            taken += came[:PREFACE]
        while at + _HEAD <= len(came) and requests < AT_ONCE:
            length, kind, flags = int.from_bytes(came[at : at + 3]), came[at + 3], came[at + 4]
            self._check(length, kind, flags)
            end = at + _HEAD + length
            if end > len(came):
                break
            frame = came[at:end]
            taken += _known(frame) if kind == _SETTINGS and not flags & _ACK else frame
            if kind in (_HEADERS, _CONTINUATION):
                self._head = 0 if flags & _END_HEADERS else self._head + length
            requests += 1 if kind == _HEADERS else 1 / _OTHERS
            at = end
        del came[:at]
        return bytes(taken), requests >= AT_ONCE and len(came) >= _HEAD

    def _check(self, length: int, kind: int, flags: int) -> None:
        if length > MAX_FRAME:
            raise _too_large(f"a frame of {length} bytes, more than {MAX_FRAME}")
        if kind in (_HEADERS, _CONTINUATION) and self._head + length > MAX_HEAD:
            raise _too_large(f"a head of more than {MAX_HEAD} bytes")


def _known(frame: bytearray) -> bytes:
    """Return a SETTINGS frame without unknown settings (RFC 9113, 6.5.2). h2 stores each of them: 65,000 took 56 MB."""
    if (len(frame) - _HEAD) % _SETTING:
        return bytes(frame)  # malformed: h2 reports it
    settings = [bytes(frame[at : at + _SETTING]) for at in range(_HEAD, len(frame), _SETTING)]
    known = b"".join(setting for setting in settings if int.from_bytes(setting[:2]) in _KNOWN)
    return len(known).to_bytes(3) + bytes(frame[3:_HEAD]) + known


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
        return super().encode(fields, huffman and all(len(field[1]) <= LONGEST_CODED for field in fields))
