"""Frames of HTTP/2 as a client sends them: how many are handled in one go, and which are too large."""

from __future__ import annotations

from typing import Any

from h2.settings import SettingCodes
from hpack import Encoder

from addons.telemetry import metrics

AT_ONCE = 4
"""Requests of one client's connection of HTTP/2 that are handled in one go."""
MAX_FRAME = 16 * 1024
"""Bytes of a frame, HTTP/2's default (RFC 9113, 4.2)."""
MAX_HEAD = 256 * 1024
"""Bytes of the frames of one head, as they come: as many as its headers may have when they are unpacked."""
LONGEST_CODED = 2048
"""Bytes of a header's value up to which its head is packed by Huffman's code, which takes 0.5 ms then. A token of a
service account has some 1,200."""
MAX_TABLE = 4096
"""Bytes of the heads that a connection remembers for HPACK: the default of clients that set none."""
PREFACE = 24
"""Bytes that a client begins with (RFC 9113, 3.4)."""
_OTHERS = 40
"""Frames that cost as much as a request: a PING, SETTINGS, a window's update."""
_HEAD = 9
"""Bytes of a frame's head: its length, type, flags and stream (RFC 9113, 4.1)."""
_HEADERS, _SETTINGS, _CONTINUATION = 1, 4, 9
_ACK, _END_HEADERS = 1, 4
_SETTING = 6
_KNOWN = frozenset(int(code) for code in SettingCodes)


class FrameTooLarge(Exception):
    """A frame, or a head, that is larger than a bound. The connection ends."""


class Frames:
    """Takes complete frames out of received bytes. h2 looks at a frame's size when all of it has come."""

    def __init__(self) -> None:
        self._is_greeted = False
        self._head = 0
        """Bytes of the head whose frames come."""

    def next_frames(self, came: bytearray) -> tuple[bytes, bool]:
        """The frames for one step, and whether there are more of them. FrameTooLarge as defined there."""
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
    """A frame of settings without those that no side knows (RFC 9113, 6.5.2). h2 keeps each: 65,000 were 56 MB."""
    if (len(frame) - _HEAD) % _SETTING:
        return bytes(frame)  # malformed, as h2 will report
    settings = [bytes(frame[at : at + _SETTING]) for at in range(_HEAD, len(frame), _SETTING)]
    known = b"".join(setting for setting in settings if int.from_bytes(setting[:2]) in _KNOWN)
    return len(known).to_bytes(3) + bytes(frame[3:_HEAD]) + known


def _too_large(what: str) -> FrameTooLarge:
    metrics.CONNECTIONS_REFUSED.labels("frame").inc()
    return FrameTooLarge(what)


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
            # The next head names these two (RFC 7541, 4.2). hpack keeps all names that a client has ever sent.
            least = min([self.header_table.maxsize, *self.table_size_changes])
            self.table_size_changes[:] = [least, self.header_table.maxsize]

    def encode(self, headers: Any, huffman: bool = True) -> bytes:
        fields = list(headers)
        return super().encode(fields, huffman and all(len(field[1]) <= LONGEST_CODED for field in fields))
