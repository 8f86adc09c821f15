"""A proxy that supports only CONNECT, on a loopback port: it connects every name to one server."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Self

from tests.cloud.ports import LOOPBACK


class ConnectProxy:
    """A proxy as an asynchronous context manager. `asked` has the received heads."""

    def __init__(
        self, port: int, *, authorization: str = "", tls: ssl.SSLContext | None = None, answer: bytes = b""
    ) -> None:
        """Connect to this loopback port. `authorization` is required; `answer` is sent to every client."""
        self.asked: list[str] = []
        self.port = 0
        self._target = port
        self._authorization = authorization
        self._tls = tls
        self._answer = answer
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://{LOOPBACK}:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, LOOPBACK, 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._carry(reader, writer), name="a tunnel")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError), contextlib.closing(writer):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.asked.append(head)
            if self._answer or (
                f"Proxy-Authorization: {self._authorization}\r\n" not in head and self._authorization
            ):
                writer.write(self._answer or b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
                await writer.drain()
                return
            their_reader, their_writer = await asyncio.open_connection(LOOPBACK, self._target)
            with contextlib.closing(their_writer):
                writer.write(b"HTTP/1.1 200 Connection established\r\nX-Proxy: yes\r\n\r\n")
                both = [
                    asyncio.create_task(pump(reader, their_writer), name="up"),
                    asyncio.create_task(pump(their_reader, writer), name="down"),
                ]
                try:
                    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for each in both:
                        each.cancel()
                    await asyncio.gather(*both, return_exceptions=True)


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
