"""Tunnel to the cloud that the peer port lends to another hub."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from addons.requests.answers import ClientLeft
from addons.server.clients.client_connection import LARGEST_READ
from addons.server.limits.request_head import fields_fault_of, headers_too_large
from addons.server.messages import error_response
from kube.errors import StatusError, bad_request
from kube.http.proxies import END

METHOD = b"CONNECT "
MAX_HEAD = 8 * 1024
"""Bytes of the head of a CONNECT: a borrower sends a hundred."""
_CONNECT = re.compile(rb"CONNECT (\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._-]+):([0-9]{1,5}) HTTP/1\.1")
OPENED = b"HTTP/1.1 200 Connection established\r\n\r\n"


logger = logging.getLogger(__name__)


class Lent(NamedTuple):
    """The link that a connection of the peer port is lent."""

    open: Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
    """A connection to the server; OSError where there is none."""
    pace: Callable[[str, int], Awaitable[None]]
    """Returns when so many bytes may be sent. The direction is up, to the cloud, or down."""


@dataclass(slots=True)
class TunnelRequest:
    """A hub's request for a tunnel, and its result: a tunnel, or a refusal."""

    client_id: str
    address: str
    """The requesting hub's address."""
    headers: tuple[tuple[str, str], ...]
    host: str
    port: int
    lent: Lent | None = field(default=None, init=False)
    refusal: StatusError | None = field(default=None, init=False)


def parse_connect(client_id: str, address: str, head: bytes) -> TunnelRequest:
    """StatusError 400 or 431 for anything but the head of a CONNECT, with nothing behind it."""
    head, end, rest = head.partition(END)
    if not end or len(head) > MAX_HEAD:
        raise headers_too_large()
    line, *others = head.split(b"\r\n")
    asked = _CONNECT.fullmatch(line)
    if asked is None or rest or not 0 < int(asked[2]) < 2**16:
        raise bad_request(
            "a CONNECT is of HTTP/1.1, for a host and a port, and nothing follows before its answer"
        )
    fields = [(name, value.strip(b" \t")) for name, _, value in (other.partition(b":") for other in others)]
    if (fault := fields_fault_of(fields)) is not None:
        raise fault
    headers = tuple((name.decode(), value.decode("utf-8", "surrogateescape")) for name, value in fields)
    return TunnelRequest(client_id, address, headers, asked[1].strip(b"[]").decode().lower(), int(asked[2]))


class Borrower(Protocol):
    """The handler of the borrower's connection."""

    is_full: Callable[[], bool]
    """Whether reading from the borrower is paused."""

    def server_writable(self) -> None:
        """Look again whether it is."""

    async def drained(self) -> None:
        """Return when the borrower's socket has space. ClientLeft if the borrower has left."""


class LentTunnel:
    """Copies between a borrower and the server of its lent link, at the pace of that link.

    The next bytes are read from the borrower when the server has taken the former ones, and from the server no more
    than one read while the borrower takes the former piece.
    """

    def __init__(
        self, lent: Lent, borrower: Borrower, tell: Callable[[bytes, bool], Awaitable[None]]
    ) -> None:
        """`tell` sends bytes to the borrower, with whether they are the last."""
        self._lent = lent
        self._borrower = borrower
        self._tell = tell
        self._said: asyncio.Queue[bytes] = asyncio.Queue()
        """The bytes from the borrower."""
        self._is_full = True
        """The server has not taken all of that, or is not there yet."""
        self._carrying: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Open the connection, and read nothing from the borrower before it is open."""
        self._borrower.is_full = lambda: self._is_full
        # Not at once, as mitmproxy's tasks begin: the layers are at work.
        self._carrying = asyncio.Task(
            self._carry(), loop=asyncio.get_running_loop(), name="carries over a lent way", eager_start=False
        )

    def send(self, data: bytes) -> None:
        """Take the borrower's bytes."""
        self._is_full = True
        self._said.put_nowait(data)

    def close(self) -> None:
        """The borrower has left."""
        if self._carrying is not None:
            self._carrying.cancel()

    async def _carry(self) -> None:
        try:
            reader, writer = await self._lent.open()
        except OSError as error:
            await self._tell(error_response(502, str(error) or type(error).__name__), True)
            return
        except Exception:
            logger.exception("a tunnel could not be opened")
            await self._tell(error_response(502, "the hub could not open a connection"), True)
            return
        try:
            await self._tell(OPENED, False)
            async with asyncio.TaskGroup() as both:
                up = both.create_task(self._carry_up(writer))
                await self._carry_down(reader)
                up.cancel()
        finally:
            # Not closed in order: a server that does not read would keep the socket of a tunnel that counts no more.
            writer.transport.abort()
        await self._tell(b"", True)

    async def _carry_up(self, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):  # that the server has left is learned by reading
            while True:
                if self._said.empty():
                    self._is_full = False
                    self._borrower.server_writable()
                data = await self._said.get()
                await self._lent.pace("up", len(data))
                writer.write(data)
                await writer.drain()

    async def _carry_down(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError, ClientLeft):
            while data := await reader.read(LARGEST_READ):
                await self._lent.pace("down", len(data))
                await self._tell(data, False)
                await self._borrower.drained()
