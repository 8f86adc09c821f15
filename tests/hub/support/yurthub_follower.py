"""The requests of a following YurtHub to its leader, like OpenYurt 1.7.0: one list, then watches, over HTTP/2. The
cacher of k8s.io/apiserver sends them, and YurtHub's reverse proxy forwards them with the node's certificate."""

from __future__ import annotations

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from kube.wire.api_objects import decode_object
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from tests.cloud.pki import Credential
from tests.hub.support.http2 import Streams
from tests.hub.support.streams import WAIT

ACCEPT = "application/json, */*"
"""The Accept header of a YurtHub: client-go's default."""
LIST = "limit=10000"
WATCH = "allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds=427&watch=true"
"""The query of a watch; YurtHub chooses a timeout between 300 and 600 s."""


class Event(NamedTuple):
    type: str
    name: str
    version: int


class Watch:
    """The events of an open watch, in the encoding that the server chose."""

    def __init__(self, streams: Streams, stream: int) -> None:
        self.events: list[Event] = []
        """The events read by `first` and `end`."""
        self._streams = streams
        self._stream = stream
        self._encoding = encoding_of(streams, stream)
        self._frames = codec_for(self._encoding).frames()
        self._size = 0
        """The number of bytes read."""

    async def first(self, name: str) -> Event:
        """Return the first event about an object."""
        await until(self._streams, lambda: any(each.name == name for each in self._read()))
        return next(each for each in self.events if each.name == name)

    async def end(self) -> Event:
        """Return the last event, once the server has ended the watch."""
        await until(self._streams, lambda: self._stream in self._streams.ended)
        return self._read()[-1]

    def _read(self) -> list[Event]:
        body = self._streams.bodies[self._stream]
        new, self._size = body[self._size :], len(body)
        for frame in self._frames.feed(new):
            found = decode_object(self._encoding, frame.api_version, frame.kind, frame.raw)
            self.events.append(Event(frame.type, found.name, found.version))
        return self.events


class YurtHubFollower:
    """Read one resource of a server, over a connection of `connected`."""

    def __init__(self, streams: Streams, node: str, path: str, accept: str = ACCEPT) -> None:
        self._streams = streams
        self._path = path
        self._headers = {
            "user-agent": f"multiplexer-proxy-{node}",
            "accept": accept,
            "accept-encoding": "gzip",
            "x-forwarded-for": "127.0.0.1",
        }

    async def list_names(self, query: str) -> tuple[int, list[str]]:
        """Return the version of a list, and the names of its objects."""
        stream = await self._ask(query)
        await until(self._streams, lambda: stream in self._streams.ended)
        body = self._streams.bodies[stream]
        if self._streams.codings[stream]:
            assert self._streams.codings[stream] == "gzip"
            body = gzip.decompress(body)
        encoding = encoding_of(self._streams, stream)
        page = codec_for(encoding).decode_list(body)
        assert not page.continue_token
        objects = (decode_object(encoding, page.api_version, page.kind, raw) for raw in page.items)
        return page.version, [each.name for each in objects]

    async def watch(self, version: int) -> Watch:
        stream = await self._ask(WATCH.format(version=version))
        assert not self._streams.codings[stream]
        return Watch(self._streams, stream)

    async def _ask(self, query: str) -> int:
        """Return the stream of a response whose headers have arrived. A leader without a copy waits for one before it
        answers 503, after which client-go retries."""
        async with asyncio.timeout(WAIT):
            while (status := await self._status(stream := self._get(query))) == 503:
                pass
        assert status == 200
        return stream

    def _get(self, query: str) -> int:
        return self._streams.get(f"{self._path}?{query}", self._headers)

    async def _status(self, stream: int) -> int:
        await self._streams.until(lambda: stream in self._streams.status)
        return self._streams.status[stream]


def encoding_of(streams: Streams, stream: int) -> Encoding:
    """Return the encoding named by the Content-Type, which has a parameter for a protobuf watch."""
    return Encoding(streams.types[stream].partition(";")[0])


async def until(streams: Streams, wanted: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT):
        await streams.until(wanted)


@asynccontextmanager
async def connected(
    address: tuple[str, int], authority: Path, credential: Credential, folder: Path
) -> AsyncIterator[Streams]:
    """Open an HTTP/2 connection with a node's certificate, whose files are written to a folder."""
    context = ssl.create_default_context(cafile=str(authority))
    context.load_cert_chain(*credential.write(folder, "yurthub-follower"))
    context.set_alpn_protocols(["h2"])
    streams = Streams(*await asyncio.open_connection(*address, ssl=context))
    try:
        yield streams
    finally:
        await streams.close()
