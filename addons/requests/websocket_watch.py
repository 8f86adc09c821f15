"""Serves a watch by WebSocket: each event is a message, text for JSON and binary for protobuf, like kube-apiserver.

The answerer writes watch frames, as for every client, and each frame becomes one message. `wsproto` does the handshake
and the framing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from wsproto.frame_protocol import CloseReason, FrameProtocol, Opcode, ParseFailed

from addons.requests.answers import ClientLeft, ClientStream
from kube.bounds import reached
from kube.requests.websocket_offer import WebSocketOffer
from kube.wire.encoding import Encoding

MAX_SENT = 1024 * 1024
"""Maximum bytes that a client may send after the handshake of one watch: pings and a close."""
LENGTH = 4
"""Bytes of the length before each protobuf event."""


class SwitchedStream(ClientStream, Protocol):
    """A stream whose answer switches the protocol of its connection."""

    async def switch(self, headers: Mapping[str, str], receive: Callable[[bytes], None]) -> None:
        """Send a 101, and pass the client's later bytes to `receive`."""

    async def end(self, last: bytes = b"") -> None:
        """Send the last bytes without waiting for space, and end the answer."""


class WebSocketWatch(ClientStream):
    """Receives the frames of a watch, and sends each as a message."""

    def __init__(self, stream: SwitchedStream, offer: WebSocketOffer) -> None:
        self._stream = stream
        self._offer = offer
        self._protocol = FrameProtocol(client=False, extensions=[])
        self._is_text = True
        self._rest = b""
        """The beginning of an event whose end has not been written yet."""
        self._sent = 0
        """Bytes that the client has sent."""
        self._ping: bytes | None = None
        """The newest unanswered ping; earlier ones need no answer (RFC 6455, 5.5.3)."""
        self._pinged = asyncio.Event()
        self._answering: asyncio.Task[object] | None = None
        """The task that writes the events; None before the 101."""
        self._replying: asyncio.Task[None] | None = None
        self._ends_by = CloseReason.NORMAL_CLOSURE
        self.is_closing = False
        """Whether the client has ended the watch or violated a limit. `end` is called next."""

    async def begin(self, headers: Mapping[str, str]) -> None:
        self._is_text = headers["Content-Type"].startswith(Encoding.JSON)
        await self._stream.switch(self._offer.switched(), self._receive)
        self._answering = asyncio.current_task()
        self._replying = asyncio.create_task(self._reply(), name="replies to pings")

    async def write(self, data: bytes) -> None:
        await self._stream.write(self._messages(data))

    async def write_all(self, pieces: Iterable[bytes]) -> None:
        await self._stream.write_all(map(self._messages, pieces))

    @property
    def try_write(self) -> Callable[[bytes], bool] | None:
        """None: WebSocket watchers are few, and each needs its own frames."""
        return None

    async def end(self) -> None:
        """Send a WebSocket close."""
        await self._stream.end(bytes(self._protocol.close(self._ends_by)) if self._answering else b"")

    def stop_pongs(self) -> None:
        """Stop replying to pings."""
        self._answering = None
        if self._replying is not None:
            self._replying.cancel()

    def _receive(self, data: bytes) -> None:
        """Handle the client's bytes. Messages are dropped: kube-apiserver does not read any either."""
        if self._answering is None or self.is_closing:
            return
        self._sent += len(data)
        if self._sent > MAX_SENT:
            reached("sent behind a watch by WebSocket")
            self._close(CloseReason.MESSAGE_TOO_BIG)
            return
        self._protocol.receive_bytes(data)
        try:
            for frame in self._protocol.received_frames():
                if frame.opcode is Opcode.PING:
                    assert not isinstance(frame.payload, (str, tuple))
                    self._ping = bytes(frame.payload)
                    self._pinged.set()
                elif frame.opcode is Opcode.CLOSE:
                    self._close(CloseReason.NORMAL_CLOSURE)
        except ParseFailed as error:
            self._close(error.code)

    def _close(self, reason: CloseReason) -> None:
        """Cancel the answer's task, whose handler then calls `end`."""
        assert self._answering is not None
        self._ends_by, self.is_closing = reason, True
        self._answering.cancel()

    async def _reply(self) -> None:
        """Answer the newest ping whenever the client has space."""
        with contextlib.suppress(ClientLeft):
            while await self._pinged.wait():
                self._pinged.clear()
                ping, self._ping = self._ping, None
                if ping is not None:
                    await self._stream.write(bytes(self._protocol.pong(ping)))

    def _messages(self, data: bytes) -> bytes:
        events = self._lines(data) if self._is_text else self._parts(data)
        return b"".join(events)

    def _lines(self, data: bytes) -> Iterator[bytearray]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            yield self._protocol.send_data(f"{line.decode('utf-8', 'replace')}\n")

    def _parts(self, data: bytes) -> Iterator[bytearray]:
        rest, at = self._rest + data, 0
        while len(rest) - at >= LENGTH:
            end = at + LENGTH + int.from_bytes(rest[at : at + LENGTH])
            if end > len(rest):
                break
            yield self._protocol.send_data(rest[at + LENGTH : end])
            at = end
        self._rest = rest[at:]
