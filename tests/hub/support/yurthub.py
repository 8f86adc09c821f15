"""The port for other hubs of a YurtHub that leads a pool, as OpenYurt 1.7.0 has it.

It answers lists and watches as a kube-apiserver does, and knows none of what hubs of this project say to each other: no
age, no deputies, no differences. It refuses nobody, and hands on to the cloud what else it is asked.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from aiohttp import web

from kube.errors import StatusError, bad_request, too_many_requests
from tests.cloud.pki import Credential
from tests.cloud.real import RealCloud
from tests.support.accepting import end_server

GRACE = 0.1
"""Seconds that open watches are given at the end; 0 would mean any time."""


class YurtHub:
    """Serves from a real kube-apiserver, as a YurtHub with a cloud does from its copy. `running` opens its port."""

    def __init__(self, cloud: RealCloud, folder: Path, serving: Credential) -> None:
        """`serving` is the certificate of its port, for whatever names."""
        self.has_cloud = True
        """If False, it answers only lists and watches, as in an outage."""
        self.is_initializing = False
        """Whether it has no copy yet."""
        self.codings: list[str] = []
        """The content codings that watches asked for. It encodes none."""
        self._cloud = cloud
        certificate, key = serving.write(folder, "yurthub")
        self._port = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(cloud.authority_file))
        self._port.load_cert_chain(certificate, key)
        self._port.verify_mode = ssl.CERT_OPTIONAL
        own = cloud.authority.issue_admin().write(folder, "yurthub-client")
        self._own = ssl.create_default_context(cafile=str(cloud.authority_file))
        self._own.load_cert_chain(*own)
        self._session: aiohttp.ClientSession | None = None
        self._runner: web.ServerRunner | None = None
        self._listening: socket.socket | None = None

    @asynccontextmanager
    async def running(self, address: str, port: int) -> AsyncIterator[YurtHub]:
        server = web.Server(self._answer, handler_cancellation=True)
        self._runner = web.ServerRunner(server, shutdown_timeout=GRACE)
        await self._runner.setup()
        self._listening = socket.create_server((address, port))
        await web.SockSite(self._runner, self._listening, ssl_context=self._port).start()
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=self._own)) as self._session:
            try:
                yield self
            finally:
                await self.stop()

    async def stop(self) -> None:
        """Close its port, and end its requests. It may have ended already."""
        assert self._runner is not None
        assert self._listening is not None
        await end_server(self._runner, self._listening)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._hand_on(request)
        except StatusError as error:
            return web.Response(status=error.code, body=error.to_json(), content_type="application/json")

    async def _hand_on(self, request: web.BaseRequest) -> web.StreamResponse:
        assert self._session is not None
        is_shared = "services" in request.path or "endpointslices" in request.path
        if is_shared and self.is_initializing:
            raise too_many_requests("cacher is initializing, please try again later.", 1)
        if not is_shared and not self.has_cloud:
            raise bad_request(f"local proxy does not support request({request.method} {request.path})")
        if "watch" in request.query:
            self.codings.append(request.headers.get("Accept-Encoding", ""))
        headers = {"Accept": request.headers.get("Accept", "*/*")}
        async with self._session.get(self._cloud.url + request.raw_path, headers=headers) as found:
            answer = web.StreamResponse(
                status=found.status, headers={"Content-Type": found.headers["Content-Type"]}
            )
            await answer.prepare(request)
            # A reader may hang up.
            with contextlib.suppress(aiohttp.ClientConnectionResetError):
                async for piece in found.content.iter_any():
                    await answer.write(piece)
                await answer.write_eof()
            return answer
