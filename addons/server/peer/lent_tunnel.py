"""Tunnel to the cloud that this hub lends to another hub through the peer port."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from addons.requests.answers import ClientLeft
from addons.server.clients.client_connection import MAX_READ
from addons.server.limits.request_head import fields_fault_of, headers_too_large
from addons.server.messages import error_response
from kube.errors import StatusError, bad_request
from kube.http.proxies import END

CONNECT = b"CONNECT "
MAX_HEAD = 8 * 1024
"""Maximum bytes of a CONNECT's head. A borrowing hub sends a hundred."""
_CONNECT = re.compile(rb"CONNECT (\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._-]+):([0-9]{1,5}) HTTP/1\.1")
ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


logger = logging.getLogger(__name__)


class LentLink(NamedTuple):
    """The link that this hub lends to one connection of the peer port."""

    open: Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
    """Opens a connection to the server. OSError if that fails."""
    pace: Callable[[str, int], Awaitable[None]]
    """Waits until the rate limit permits sending this many bytes in a direction: "up" to the cloud, or "down"."""


@dataclass(slots=True)
class TunnelRequest:
    """Another hub's request for a tunnel, with its result: a link or a refusal."""

    client_id: str
    address: str
    """Address of the requesting hub."""
    headers: tuple[tuple[str, str], ...]
    host: str
    port: int
    lent: LentLink | None = field(default=None, init=False)
    refusal: StatusError | None = field(default=None, init=False)


def parse_connect(client_id: str, address: str, head: bytes) -> TunnelRequest:
    """Parse the head of a CONNECT. StatusError 400 or 431 if it is anything else, or if bytes follow it."""
    head, end, rest = head.partition(END)
    if not end or len(head) > MAX_HEAD:
        raise headers_too_large()
    line, *others = head.split(b"\r\n")
    match = _CONNECT.fullmatch(line)
    if match is None or rest or not 0 < int(match[2]) < 2**16:
        raise bad_request("expected CONNECT host:port HTTP/1.1, and no data before its answer")
    fields = [(name, value.strip(b" \t")) for name, _, value in (other.partition(b":") for other in others)]
    if (fault := fields_fault_of(fields)) is not None:
        raise fault
    headers = tuple((name.decode(), value.decode("utf-8", "surrogateescape")) for name, value in fields)
    return TunnelRequest(client_id, address, headers, match[1].strip(b"[]").decode().lower(), int(match[2]))


class Borrower(Protocol):
    """The handler of the borrowing hub's connection."""

    is_full: Callable[[], bool]
    """Returns whether reading from the borrower must be paused."""

    def server_writable(self) -> None:
        """Pause or resume reading from the borrower, according to `is_full`."""

    async def drained(self) -> None:
        """Return when the borrower's socket has space. ClientLeft if the borrower has left."""


class LentTunnel:
    """Copies bytes between a borrower and a server, at the rate limit of the lent link, with back-pressure in both
    directions.

    Reading from the borrower is paused while the server has not taken all bytes. Reading from the server is paused
    while the borrower has not taken the last piece.
    """

    def __init__(
        self, lent: LentLink, borrower: Borrower, send_back: Callable[[bytes, bool], Awaitable[None]]
    ) -> None:
        """`send_back` sends bytes to the borrower; its second argument is true for the last ones."""
        self._lent = lent
        self._borrower = borrower
        self._send_back = send_back
        self._from_borrower: asyncio.Queue[bytes] = asyncio.Queue()
        """Bytes received from the borrower."""
        self._is_full = True
        """Whether the server has not taken all bytes, or is not connected yet."""
        self._copying: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Start to connect to the server. Nothing is read from the borrower before the connection is open."""
        self._borrower.is_full = lambda: self._is_full
        # Not started eagerly: the caller must finish its own set-up first.
        self._copying = asyncio.Task(
            self._copy(), loop=asyncio.get_running_loop(), name="lent tunnel", eager_start=False
        )

    def send(self, data: bytes) -> None:
        """Queue bytes from the borrower for the server."""
        self._is_full = True
        self._from_borrower.put_nowait(data)

    def close(self) -> None:
        """Close the tunnel: the borrower has left."""
        if self._copying is not None:
            self._copying.cancel()

    async def _copy(self) -> None:
        try:
            reader, writer = await self._lent.open()
        except OSError as error:
            await self._send_back(error_response(502, str(error) or type(error).__name__), True)
            return
        except Exception:
            logger.exception("a tunnel could not be opened")
            await self._send_back(error_response(502, "the hub could not open a connection"), True)
            return
        try:
            await self._send_back(ESTABLISHED, False)
            async with asyncio.TaskGroup() as both:
                up = both.create_task(self._copy_up(writer))
                await self._copy_down(reader)
                up.cancel()
        finally:
            # Abort rather than close: a server that does not read would hold the socket open after the tunnel is
            # uncounted.
            writer.transport.abort()
        await self._send_back(b"", True)

    async def _copy_up(self, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):  # `_copy_down` notices that the server has left
            while True:
                if self._from_borrower.empty():
                    self._is_full = False
                    self._borrower.server_writable()
                data = await self._from_borrower.get()
                await self._lent.pace("up", len(data))
                writer.write(data)
                await writer.drain()

    async def _copy_down(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError, ClientLeft):
            while data := await reader.read(MAX_READ):
                await self._lent.pace("down", len(data))
                await self._send_back(data, False)
                await self._borrower.drained()
