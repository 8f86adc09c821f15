"""Sessions of HTTP/1.1 for clients that speak to a test's own cloud, with nothing in between."""

from __future__ import annotations

import aiohttp

from kube.http.http1 import Http1Session


def new_session() -> Http1Session:
    """Open a session, which the test must close."""
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=30)
    return Http1Session(aiohttp.ClientSession(connector=connector, auto_decompress=False))
