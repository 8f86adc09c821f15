"""The test cloud as tests and the demo use it: `async with ScriptableCloud() as cloud: cloud.store.create({...})`.
Unlike a real server it deletes pods and namespaces at once, does not validate specs, and supports neither managedFields
nor server-side apply."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterable
from typing import Any, Self

from aiohttp import web

from tests.cloud.scriptable.access import Access
from tests.cloud.scriptable.faults import Faults
from tests.cloud.scriptable.object_store import ObjectStore
from tests.cloud.scriptable.request_log import RequestLog
from tests.cloud.scriptable.resources import RESOURCES, Resource, ResourceTable
from tests.cloud.scriptable.server import Server
from tests.cloud.scriptable.storage import FIRST_VERSION, HISTORY, Storage
from tests.cloud.scriptable.watch import WatchSettings
from tests.support.accepting import end_server

LOOPBACK = "127.0.0.1"
NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
"""The objects that exist from the start, as in a real cluster."""
FAREWELL = 0.01
"""Seconds that open requests get to finish when the cloud stops; a killed server gives none."""


class ScriptableCloud:
    """An API server on its own loopback port. It may be stopped and started again: port and objects stay. `store` has
    the objects, `resources` the served resources, `faults` the faults, `access` the callers, `requests` the log, and
    `watches` the bookmark interval and timeout. With `tls` it serves HTTPS, and callers are identified by the common
    name of a certificate that the context verifies."""

    def __init__(
        self,
        *,
        resources: Iterable[Resource] = RESOURCES,
        tls: ssl.SSLContext | None = None,
        first_version: int = FIRST_VERSION,
        history: int = HISTORY,
    ) -> None:
        self.resources = ResourceTable(resources)
        self.store = ObjectStore(Storage(first_version, history), self.resources)
        self.access = Access()
        self.faults = Faults()
        self.requests = RequestLog()
        self.watches = WatchSettings()
        self._server = Server(
            self.store, self.resources, self.access, self.faults, self.requests, self.watches
        )
        self._tls = tls
        self._port = 0
        self._runner: web.ServerRunner | None = None
        self._listening: socket.socket
        for name in NAMESPACES:
            self.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    @property
    def url(self) -> str:
        """Return the URL where it listens, or will listen again; known after the first start."""
        if not self._port:
            raise RuntimeError("the cloud was never started")
        return f"{'https' if self._tls else 'http'}://{LOOPBACK}:{self._port}"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen, on the same port as before if there was one."""
        server = web.Server(
            self._server.handle, request_factory=_request, handler_cancellation=True, access_log=None
        )
        runner = web.ServerRunner(server, shutdown_timeout=FAREWELL)
        await runner.setup()
        self._listening = socket.create_server((LOOPBACK, self._port))
        await web.SockSite(runner, self._listening, ssl_context=self._tls).start()
        self._port = self._listening.getsockname()[1]
        self._runner = runner

    async def stop(self) -> None:
        """Close the port and every connection, as if killed."""
        if self._runner:
            await end_server(self._runner, self._listening)
            self._runner = None


def _request(
    message: Any, payload: Any, protocol: Any, writer: Any, task: asyncio.Task[None]
) -> web.BaseRequest:
    """Return a request whose body aiohttp does not limit: the API has its own limit and its own response beyond it."""
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=0)
