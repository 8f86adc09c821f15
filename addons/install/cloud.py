"""Requests of the installation and of the doctor: to the cloud, past the hub, and to the hub on this node."""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import aiohttp

from kube.http.access_review import is_allowed
from kube.http.client import Client
from kube.http.http1 import Http1Session
from kube.http.kubeconfig import Credentials
from kube.http.proxies import proxy_for
from kube.json_type import Json

USER_AGENT = "edgehub-install"
TIMEOUT = 10.0
"""Seconds for one answer."""


@asynccontextmanager
async def cloud(credentials: Credentials, context: ssl.SSLContext) -> AsyncIterator[Client]:
    """A client with the rights of a kubeconfig. `kube.http.tls.tls_context` has made `context` of that kubeconfig."""
    connector = aiohttp.TCPConnector(ssl=context)
    headers = {"User-Agent": USER_AGENT}
    if credentials.bearer:
        headers["Authorization"] = credentials.bearer

    async def by_name(
        request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        # tls-server-name: the name in the server's certificate where it differs from the URL's host.
        request.server_hostname = credentials.server_name or None
        return await send(request)

    url = urlsplit(credentials.server)
    port = url.port or (443 if url.scheme == "https" else 80)
    proxy = proxy_for(url.scheme, url.hostname or "", port, credentials.proxy, os.environ)
    session = aiohttp.ClientSession(
        connector=connector,
        auto_decompress=False,
        middlewares=[by_name],
        proxy=str(proxy) if proxy is not None else None,
        proxy_auth=aiohttp.BasicAuth.decode(proxy.authorization) if proxy and proxy.authorization else None,
    )
    async with Http1Session(session) as opened:
        yield Client(opened, credentials.server, headers)


@asynccontextmanager
async def local(url: str) -> AsyncIterator[Client]:
    """A client of a port of the hub."""
    async with Http1Session(aiohttp.ClientSession(auto_decompress=False)) as opened:
        yield Client(opened, url, {"User-Agent": USER_AGENT})


async def get(client: Client, path: str) -> Json:
    """An object of the API; errors as `kube.http.client.Client.request`."""
    document: Json = json.loads((await client.request("GET", path, timeout=TIMEOUT)).body)
    return document


async def may(client: Client, attributes: Json) -> bool:
    """Whether the client's user has a right to a resource; errors as `get`."""
    return await is_allowed(client, {"resourceAttributes": attributes}, timeout=TIMEOUT)
