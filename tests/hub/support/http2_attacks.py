"""Attacks on a hub over HTTP/2."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.settings import SettingCodes

from tests.cloud.ports import LOOPBACK
from tests.hub.support.attack import IN_DEFAULT, PATIENCE, SLICES, Aim, context_of, opened

STREAMS = 90
"""Streams of one HTTP/2 connection that the client does not read."""
BATCHES = 50
"""Packets of requests, or of frames, that one repetition of an attack sends."""
SETTINGS = b"\4\0\0\0\0\0"
"""The header of a SETTINGS frame after its length."""
NO_WINDOW = b"\0\4\0\0\0\0"
"""The setting that gives every stream an empty window."""


@asynccontextmanager
async def framing(aim: Aim) -> AsyncIterator[tuple[H2Connection, asyncio.StreamWriter]]:
    """Open an HTTP/2 connection; the caller sends its data."""
    async with opened(aim.tls, context_of("h2")) as (_, writer):
        connection = H2Connection(H2Configuration(client_side=True))
        connection.initiate_connection()
        yield connection, writer


def begun(
    connection: H2Connection,
    method: str,
    path: str,
    token: str,
    *,
    end: bool = True,
    component: str = "kube-proxy/v1",
) -> int:
    """Send the head of a request; return its stream number."""
    number = connection.get_next_available_stream_id()
    pseudo = [(":method", method), (":path", path), (":scheme", "https"), (":authority", LOOPBACK)]
    sent = [*pseudo, ("authorization", f"Bearer {token}"), ("user-agent", component)]
    connection.send_headers(number, sent, end_stream=end)
    return int(number)


async def unread_streams(aim: Aim) -> None:
    """Request lists over HTTP/2 without reading a byte; abort the connection at the end."""
    async with framing(aim) as (connection, writer):
        for number in range(STREAMS):
            begun(
                connection,
                "GET",
                f"{SLICES}?resourceVersion=0" + ("&watch=true" if number % 2 else ""),
                aim.reader,
            )
        writer.write(connection.data_to_send())
        await asyncio.sleep(PATIENCE / 2)


async def taken_back_requests(aim: Aim) -> None:
    """Send requests that are relayed, and cancel each in the same packet, as fast as the hub accepts them."""
    async with framing(aim) as (connection, writer):
        for _ in range(BATCHES):
            for _ in range(STREAMS):
                number = begun(connection, "GET", IN_DEFAULT + "configmaps/none", aim.reader)
                connection.reset_stream(number, ErrorCodes.CANCEL)
            writer.write(connection.data_to_send())
            await writer.drain()


async def frames_for_nothing(aim: Aim) -> None:
    """Send PING, SETTINGS, PRIORITY, WINDOW_UPDATE, and a head without end, thousands of each."""
    floods = (
        (b"", b"\0\0\x08\x06\0\0\0\0\0" + bytes(8)),
        (b"", b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\x64"),
        (b"", b"\0\0\x05\x02\0\0\0\0\x01\0\0\0\0\x10"),
        (b"", b"\0\0\x04\x08\0\0\0\0\0\0\0\0\x01"),
        (b"\0\0\0\x01\0\0\0\0\x01", b"\0\0\0\x09\0\0\0\0\x01"),
    )
    for begin, flood in floods:
        async with framing(aim) as (connection, writer):
            writer.write(connection.data_to_send() + begin)
            for _ in range(BATCHES):
                writer.write(flood * 4_000)
                await writer.drain()


async def bytes_one_by_one(aim: Aim) -> None:
    """Send bodies with one byte or none in each frame."""
    async with framing(aim) as (connection, writer):
        numbers = [begun(connection, "POST", IN_DEFAULT + "events", aim.reader, end=False) for _ in range(10)]
        for _ in range(BATCHES):
            for number in numbers * 20:
                connection.send_data(number, b"")
                connection.send_data(number, b"x")
            writer.write(connection.data_to_send())
            await writer.drain()


async def invented_settings(aim: Aim) -> None:
    """Send unknown settings, and a header table size of 2 GiB, without a token."""
    async with framing(aim) as (connection, writer):
        numbers = [int(SettingCodes.HEADER_TABLE_SIZE), *range(100, 65_536)]
        for at in range(0, len(numbers), 20_000):
            said = b"".join(number.to_bytes(2) + b"\x7f\xff\xff\xff" for number in numbers[at : at + 20_000])
            writer.write(connection.data_to_send() + len(said).to_bytes(3) + SETTINGS + said)
            await writer.drain()
        for _ in range(BATCHES):
            begun(connection, "GET", f"/version?x={next(aim.numbers)}", aim.nobody)
        writer.write(connection.data_to_send())
        await asyncio.sleep(PATIENCE / 2)


async def window_floods(aim: Aim) -> None:
    """Let responses wait for a window, and send thousands of window frames that release no byte."""
    async with framing(aim) as (connection, writer):
        writer.write(connection.data_to_send() + b"\0\0\x06" + SETTINGS + NO_WINDOW)
        for _ in range(10 * STREAMS):
            begun(connection, "GET", "/refused", "")
        writer.write(connection.data_to_send())
        await asyncio.sleep(1.0)
        for _ in range(BATCHES):
            writer.write((b"\0\0\x04\x08\0\0\0\0\0\0\0\0\x01\0\0\x06" + SETTINGS + NO_WINDOW) * 1_000)
            await writer.drain()


async def unfinished_requests(aim: Aim) -> None:
    """Send requests without a token whose bodies do not end: the hub answers each at once."""
    async with framing(aim) as (connection, writer):
        for _ in range(10 * STREAMS):
            begun(connection, "POST", IN_DEFAULT + "events", "", end=False)
        writer.write(connection.data_to_send())
        await asyncio.sleep(PATIENCE / 2)


async def long_heads(aim: Aim) -> None:
    """Send requests with heads of 30 KB, each of which waits for the end of its body."""
    async with framing(aim) as (connection, writer):
        target = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        fields = [(":method", "POST"), (":path", target), (":scheme", "https"), (":authority", LOOPBACK)]
        fields += [("authorization", f"Bearer {aim.nobody}"), ("x-long", f"{next(aim.numbers):030000}")]
        for stream in range(1, 10 * STREAMS, 2):
            packed, of = connection.encoder.encode(fields, huffman=False), stream.to_bytes(4)
            first, rest = packed[:16_000], packed[16_000:]
            begin = len(first).to_bytes(3) + b"\1\0" + of + first
            writer.write(connection.data_to_send() + begin + len(rest).to_bytes(3) + b"\x09\4" + of + rest)
            await writer.drain()
        await asyncio.sleep(PATIENCE / 2)


async def held_lists(aim: Aim) -> None:
    """Request lists that the hub buffers to cache them, without reading a byte."""
    async with framing(aim) as (connection, writer):
        for _ in range(STREAMS):
            begun(connection, "GET", IN_DEFAULT + "configmaps", aim.reader, component="kubelet/v1")
        writer.write(connection.data_to_send())
        await asyncio.sleep(PATIENCE / 2)
