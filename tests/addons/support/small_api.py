"""An API server of a few paths, for responses that a real one does not send, such as another version or another
time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from kube.http.kubeconfig import Cluster, Credentials


@asynccontextmanager
async def small_api(
    answers: Mapping[str, Any], headers: Mapping[str, str] = {}, refused: frozenset[str] = frozenset()
) -> AsyncIterator[str]:
    """Yield the URL of a server that answers GETs by path with these texts or objects, and 404 otherwise. It allows all
    reviews, except for the resources in `refused`."""

    async def answer(request: web.Request) -> web.Response:
        if request.method == "POST":
            attributes = (await request.json())["spec"]["resourceAttributes"]
            allowed = attributes["resource"] not in refused
            return web.json_response({"status": {"allowed": allowed}}, status=201)
        found = answers.get(request.path)
        if found is None:
            return web.json_response({"kind": "Status", "message": "not found", "code": 404}, status=404)
        if isinstance(found, str):
            return web.Response(text=found, headers=headers)
        return web.json_response(found, headers=headers)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(app) as server:
        yield str(server.make_url("/")).rstrip("/")


def anonymous(url: str) -> Credentials:
    """Return a kubeconfig with a server and without credentials."""
    return Credentials(Cluster(url))
