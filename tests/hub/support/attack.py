"""Parts of each attack on a hub: its target, connections, and requests over HTTP/1.1. Nothing leaves loopback."""

from __future__ import annotations

import asyncio
import itertools
import json
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.cloud.ports import LOOPBACK

CHUNK = b"x" * 65_536
MUCH = 400
"""Chunks of an oversized body or head: 26 MB."""
PATIENCE = 10.0
"""Seconds for one round of an attack."""
IN_DEFAULT = "/api/v1/namespaces/default/"
SLICES = "/apis/discovery.k8s.io/v1/endpointslices"


@dataclass(slots=True)
class Aim:
    """The target of attacks: the hub's ports, a token that may write Services and slices, one without permissions, and
    the results."""

    plain: int
    tls: int
    reader: str
    nobody: str
    numbers: itertools.count[int] = field(default_factory=itertools.count)
    carried: Counter[str] = field(default_factory=Counter)
    stopped: Counter[str] = field(default_factory=Counter)


type Attack = Callable[[Aim], Awaitable[None]]


def context_of(*protocols: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # no verification: the hub is on this machine, and gets no secret
    if protocols:
        context.set_alpn_protocols(protocols)
    return context


@asynccontextmanager
async def opened(
    port: int, context: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(LOOPBACK, port, ssl=context)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


def head(method: str, target: str, token: str = "", *more: str) -> bytes:
    """Return the head of a request that closes its connection."""
    lines = [
        f"{method} {target} HTTP/1.1",
        f"Host: {LOOPBACK}",
        "User-Agent: kubelet/v1",
        "Connection: close",
    ]
    lines += [f"Authorization: Bearer {token}"] if token else []
    return "\r\n".join([*lines, *more, "", ""]).encode()


async def asked(aim: Aim, request: bytes) -> None:
    """Send one request to the TLS port; read its complete response."""
    async with opened(aim.tls, context_of()) as (reader, writer):
        writer.write(request)
        await reader.read(-1)


async def written(
    aim: Aim, method: str, target: str, content: object, kind: str = "application/json"
) -> None:
    """Send a write with the first token."""
    body = json.dumps(content).encode()
    what = (f"Content-Type: {kind}", f"Content-Length: {len(body)}")
    await asked(aim, head(method, target, aim.reader, *what) + body)


async def poured(port: int, context: ssl.SSLContext | None, begin: bytes, piece: bytes) -> None:
    """Send a request whose body or head never ends."""
    async with opened(port, context) as (_, writer):
        writer.write(begin)
        for _ in range(MUCH):
            writer.write(piece)
            await writer.drain()
