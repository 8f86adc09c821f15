"""HTTP/1.1 sessions for clients that call a test's own cloud directly."""

from __future__ import annotations

import aiohttp

from kube.http.http1 import Http1Session


def new_session() -> Http1Session:
    """Open a session, which the test must close."""
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=30)
    return Http1Session(aiohttp.ClientSession(connector=connector, auto_decompress=False))
