"""A client that keeps many streams of one HTTP/2 connection open, as client-go does with a pod's watches."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import Callable, Mapping

import h2.config
import h2.connection
import h2.errors
import h2.events


class Streams:
    """Requests over one TLS connection: their status by stream, and the bytes that each has received."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=True, header_encoding=None)
        )
        self._h2.initiate_connection()
        self._flush()
        self.status: dict[int, int] = {}
        self.received: Counter[int] = Counter()
        self.ended: set[int] = set()
        """Streams whose answer is whole, or was broken off."""
        self._news = asyncio.Event()
        self._task = asyncio.create_task(self._read())

    @classmethod
    async def open(cls, port: int, authority: str) -> Streams:
        context = ssl.create_default_context(cafile=authority)
        context.set_alpn_protocols(["h2"])
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        return cls(reader, writer)

    async def limit(self) -> int:
        """How many streams the server lets a connection have."""
        await self.until(lambda: self._settled)
        return int(self._h2.remote_settings.max_concurrent_streams)

    def get(self, path: str, headers: Mapping[str, str]) -> int:
        stream = int(self._h2.get_next_available_stream_id())
        pseudo = [(":method", "GET"), (":path", path), (":scheme", "https"), (":authority", "hub")]
        self._h2.send_headers(stream, [*pseudo, *headers.items()], end_stream=True)
        self._flush()
        return stream

    def cancel(self, stream: int) -> None:
        self._h2.reset_stream(stream, h2.errors.ErrorCodes.CANCEL)
        self._flush()

    async def until(self, wanted: Callable[[], bool]) -> None:
        """Return when something holds; it is looked at after each event."""
        while not wanted():
            self._news.clear()
            await self._news.wait()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._writer.transport.abort()
        await asyncio.gather(self._writer.wait_closed(), return_exceptions=True)

    _settled = False

    async def _read(self) -> None:
        while data := await self._reader.read(65536):
            for event in self._h2.receive_data(data):
                match event:
                    case h2.events.RemoteSettingsChanged():
                        self._settled = True
                    case h2.events.ResponseReceived():
                        self.status[event.stream_id] = int(dict(event.headers)[b":status"])
                    case h2.events.DataReceived():
                        self.received[event.stream_id] += len(event.data)
                        self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                    case h2.events.StreamEnded() | h2.events.StreamReset():
                        self.ended.add(event.stream_id)
            self._flush()
            self._news.set()

    def _flush(self) -> None:
        self._writer.write(self._h2.data_to_send())
