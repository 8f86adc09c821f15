"""How the manager's client wants its connections, whoever makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import aiohttp

READ_BUFFER = 64 * 1024
"""Bytes that a connection buffers. The package's own 2 MiB for each watch would be memory for nothing."""


def session_options(before_sending: Callable[[], None], server_name: str | None) -> dict[str, Any]:
    """Options of an `aiohttp.ClientSession` for the manager's client: bodies as they are on the wire, and no cookies.

    The session calls `before_sending` for each request once its connection is open. `server_name` is the name in the
    server's certificate where it differs from the URL's host.
    """

    async def about_to_send(*_: object) -> None:
        before_sending()

    async def named(
        request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        request.server_hostname = server_name or None
        return await send(request)

    # Despite its name, aiohttp sends this signal just before it writes the headers.
    sending = aiohttp.TraceConfig()
    sending.on_request_headers_sent.append(about_to_send)
    return {
        "auto_decompress": False,
        "cookie_jar": aiohttp.DummyCookieJar(),
        "middlewares": [named],
        "read_bufsize": READ_BUFFER,
        "trace_configs": [sending],
    }
