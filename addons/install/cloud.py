"""Requests of the installation and of the doctor: to the cloud, past the hub, and to the hub on this node."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from addons.link.health import Cloud, ServerHealth
from addons.link.link import Link
from addons.link.own_requests import OwnRequests
from addons.link.request_records import RequestRecords
from addons.link.servers import parse_server
from addons.requests.caller import Lending
from addons.telemetry.component_traffic import ComponentTraffic
from kube.http.access_review import is_allowed
from kube.http.client import Client
from kube.http.kubeconfig import Credentials
from kube.json_type import Json

USER_AGENT = "edgehub-install"
TIMEOUT = 10.0
"""Seconds for one answer."""


@asynccontextmanager
async def cloud(credentials: Credentials) -> AsyncIterator[Client]:
    """A client with the rights of a kubeconfig. ValueError where its server is no URL."""
    parts = urlsplit(credentials.server)
    async with _client(f"{parts.scheme}://{parts.netloc}", parts.path, credentials) as client:
        yield client


@asynccontextmanager
async def local(url: str) -> AsyncIterator[Client]:
    """A client of a port of the hub."""
    async with _client(url, "", None) as client:
        yield client


@asynccontextmanager
async def _client(url: str, path: str, credentials: Credentials | None) -> AsyncIterator[Client]:
    server, link = parse_server(url), Link()
    health = ServerHealth(server)
    # Not among the servers of the cloud: the link would log that it is down, and the caller says so already.
    link.start_peers(None, lambda: {str(server): health})
    if credentials is not None:
        link.start(Cloud([], "priority"), credentials)
    session = OwnRequests(link, Lending.HUB, ComponentTraffic(), RequestRecords())
    try:
        yield Client(session, server.url + path, {"User-Agent": USER_AGENT})
    finally:
        link.close()


async def get(client: Client, path: str) -> Json:
    """An object of the API; errors as `kube.http.client.Client.request`."""
    document: Json = json.loads((await client.request("GET", path, timeout=TIMEOUT)).body)
    return document


async def may(client: Client, attributes: Json) -> bool:
    """Whether the client's user has a right to a resource; errors as `get`."""
    return await is_allowed(client, {"resourceAttributes": attributes}, timeout=TIMEOUT)
