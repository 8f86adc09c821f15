"""A hub whose cloud is behind a gateway to several clusters: each path starts with the cluster's prefix."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from aiohttp import web

from tests.cloud.ports import LOOPBACK, free_port
from tests.cloud.scriptable import ScriptableCloud
from tests.hub.support.process import Hub, started
from tests.hub.support.streams import listed, watching

PREFIX = "/k8s/clusters/c-m-1"


class Gateway:
    """Forward requests below PREFIX, like Rancher, and answer 404 to others."""

    def __init__(self, cloud: ScriptableCloud) -> None:
        self._cloud = cloud
        self.strays: list[str] = []
        self.url = ""

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[Gateway]:
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", self._hand_on)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0)
        await runner.setup()
        port = free_port()
        await web.TCPSite(runner, LOOPBACK, port).start()
        self.url = f"http://{LOOPBACK}:{port}{PREFIX}"
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _hand_on(self, request: web.Request) -> web.StreamResponse:
        if not request.raw_path.startswith(f"{PREFIX}/"):
            self.strays.append(request.raw_path)
            return web.Response(status=404)
        target = self._cloud.url + request.raw_path.removeprefix(PREFIX)
        headers = {name: value for name, value in request.headers.items() if name != "Host"}
        async with (
            aiohttp.ClientSession(auto_decompress=False) as session,
            session.request(request.method, target, headers=headers, data=await request.read()) as answer,
        ):
            passed_on = {name: value for name, value in answer.headers.items() if name != "Transfer-Encoding"}
            response = web.StreamResponse(status=answer.status, headers=passed_on)
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            return response


async def test_the_path_in_a_server_url_prefixes_every_request(
    cloud: ScriptableCloud, tmp_path: Path
) -> None:
    """Rancher's kubeconfigs have such a server; the hub once refused to start with one."""
    cloud.store.create({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}})
    services = "/api/v1/services"
    async with (
        Gateway(cloud).serve() as gateway,
        started(Hub(tmp_path, gateway.url)) as hub,
        aiohttp.ClientSession() as session,
    ):
        async with watching(hub.url, services, component="kube-proxy") as events:
            await events.first("ADDED", "web")
        assert list(await listed(hub.url, services, component="kubectl")) == ["web"]
        body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "new", "namespace": "default"}}
        path = f"{hub.url}/api/v1/namespaces/default/services"
        async with session.post(path, json=body) as answer:
            assert answer.status == 201
        assert not gateway.strays
