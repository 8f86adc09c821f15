"""A client that opens many streams on one HTTP/2 connection, like client-go with a pod's watches."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping

import h2.config
import h2.connection
import h2.errors
import h2.events


class Streams:
    """Requests over one TLS connection: their status by stream, and the received bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        # h2 would refuse to send an attacker's data.
        config = h2.config.H2Configuration(
            client_side=True,
            header_encoding=None,
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
        )
        self._h2 = h2.connection.H2Connection(config)
        self._h2.initiate_connection()
        self._flush()
        self.status: dict[int, int] = {}
        self.types: dict[int, str] = {}
        """The Content-Type of each response."""
        self.codings: dict[int, str] = {}
        """The Content-Encoding of each response."""
        self.received: Counter[int] = Counter()
        self._untaken: Counter[int] = Counter()
        self.bodies: defaultdict[int, bytes] = defaultdict(bytes)
        """The bytes received while `keep` is set."""
        self.keep = True
        self.reads = True
        """True if the client increases the server's window when it has read data."""
        self.ended: set[int] = set()
        """Streams whose response is complete or aborted."""
        self.resets: dict[int, int] = {}
        """The error codes of reset streams."""
        self._news = asyncio.Event()
        self._task = asyncio.create_task(self._read())

    @classmethod
    async def open(cls, port: int, authority: str) -> Streams:
        context = ssl.create_default_context(cafile=authority)
        context.set_alpn_protocols(["h2"])
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        return cls(reader, writer)

    async def limit(self) -> int:
        """Return the maximum number of streams that the server allows on a connection."""
        await self.until(lambda: self._settled)
        return int(self._h2.remote_settings.max_concurrent_streams)

    def get(self, path: str, headers: Mapping[str, str]) -> int:
        stream = int(self._h2.get_next_available_stream_id())
        pseudo = [(":method", "GET"), (":path", path), (":scheme", "https"), (":authority", "hub")]
        self._h2.send_headers(stream, [*pseudo, *headers.items()], end_stream=True)
        self._flush()
        return stream

    def get_many(self, path: str, count: int) -> None:
        """Send `count` requests in one packet."""
        for _ in range(count):
            stream = int(self._h2.get_next_available_stream_id())
            pseudo = [(":method", "GET"), (":path", path), (":scheme", "https"), (":authority", "hub")]
            self._h2.send_headers(stream, pseudo, end_stream=True)
        self._flush()

    def post(
        self, path: str, headers: Mapping[str, str], body: bytes, *, trailers: Mapping[str, str] = {}
    ) -> int:
        """Send a request with a body of at most a window, in pieces of a frame."""
        pseudo = {":method": "POST", ":path": path, ":scheme": "https", ":authority": "hub"}
        stream = self.send({**pseudo, **headers}, end=False)
        self.more(stream, body, end=not trailers)
        if trailers:
            self._h2.send_headers(stream, list(trailers.items()), end_stream=True)
            self._flush()
        return stream

    def send(self, fields: Mapping[str, str], *, end: bool = True) -> int:
        """Send a request with exactly these fields."""
        stream = int(self._h2.get_next_available_stream_id())
        self._h2.send_headers(stream, list(fields.items()), end_stream=end)
        self._flush()
        return stream

    def more(self, stream: int, body: bytes, *, end: bool = False) -> None:
        """Send more of a request's body, unless its response has arrived: then the server has closed the stream."""
        if stream in self.ended:
            return
        size = self._h2.max_outbound_frame_size
        pieces = [body[at : at + size] for at in range(0, len(body), size)] or [b""]
        for piece in pieces:
            self._h2.send_data(stream, piece, end_stream=end and piece is pieces[-1])
        self._flush()

    async def pour(self, stream: int) -> int:
        """Send a body until the server's window has been full for a while; return the number of its bytes."""
        sent = 0
        while True:
            try:
                async with asyncio.timeout(0.5):
                    await self.window(stream, 1)
            except TimeoutError:
                return sent
            size = min(self._h2.local_flow_control_window(stream), self._h2.max_outbound_frame_size)
            self.more(stream, bytes(size))
            sent += size

    def widen(self, size: int) -> None:
        """Increase the window for all of the server's streams together, as clients with many streams do."""
        self._h2.increment_flow_control_window(size)
        self._flush()

    def take(self, stream: int) -> None:
        """Increase the server's window by the bytes that arrived on a stream while the client did not read."""
        size, self._untaken[stream] = self._untaken[stream], 0
        self._h2.acknowledge_received_data(size, stream)
        self._flush()

    async def window(self, stream: int, size: int) -> None:
        """Wait until the server accepts this many bytes of a body, or has closed the stream."""
        await self.until(lambda: stream in self.ended or self._h2.local_flow_control_window(stream) >= size)

    def say(self, raw: bytes) -> None:
        """Send bytes that may be no frames."""
        self._writer.write(raw)

    def cancel(self, stream: int) -> None:
        """Cancel a request whose response is incomplete."""
        if stream in self.ended:
            return
        self._h2.reset_stream(stream, h2.errors.ErrorCodes.CANCEL)
        self._flush()

    async def until(self, wanted: Callable[[], bool]) -> None:
        """Wait until the condition holds, evaluated after each event. ConnectionError if the connection ends."""
        while not wanted():
            if self._is_gone:
                raise ConnectionError("the server has closed the connection")
            self._news.clear()
            await self._news.wait()

    async def gone(self) -> None:
        """Return when the server has closed the connection."""
        await asyncio.wait([self._task])

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._writer.transport.abort()
        await asyncio.gather(self._writer.wait_closed(), return_exceptions=True)

    _settled = False
    _is_gone = False

    async def _read(self) -> None:
        try:
            while data := await self._reader.read(65536):
                self._take(data)
                self._flush()
                self._news.set()
        finally:
            self._is_gone = True
            self._news.set()

    def _take(self, data: bytes) -> None:
        for event in self._h2.receive_data(data):
            match event:
                case h2.events.RemoteSettingsChanged():
                    self._settled = True
                case h2.events.ResponseReceived():
                    head = dict(event.headers)
                    self.status[event.stream_id] = int(head[b":status"])
                    self.types[event.stream_id] = head.get(b"content-type", b"").decode()
                    self.codings[event.stream_id] = head.get(b"content-encoding", b"").decode()
                case h2.events.DataReceived():
                    self.received[event.stream_id] += len(event.data)
                    if self.keep:
                        self.bodies[event.stream_id] += event.data
                    if not self.reads:
                        self._untaken[event.stream_id] += event.flow_controlled_length
                    else:
                        self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                case h2.events.StreamEnded():
                    self.ended.add(event.stream_id)
                case h2.events.StreamReset():
                    self.resets[event.stream_id] = int(event.error_code or 0)
                    self.ended.add(event.stream_id)

    def _flush(self) -> None:
        self._writer.write(self._h2.data_to_send())
