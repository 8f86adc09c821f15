"""Serves the admin port: health, readiness, metrics, and pages that show people what the hub is doing."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from addons.inputs.filter_inputs import FilterInputs
from addons.offline.offline_mode import Offline
from addons.requests.browser_check import OwnAddress, refuse_web_pages
from addons.rules.in_force import RulesInForce
from addons.settings import Settings
from addons.telemetry import metrics
from addons.ui.explain import explain
from addons.upstream.health import Cloud
from addons.views.source import Source
from addons.views.sources import Sources
from kube.errors import StatusError

Page = Callable[[web.Request], Awaitable[web.Response]]


class Admin:
    """Serves on the admin port from `start` to `close`. The port is bound at once: a taken one stops the start."""

    def __init__(
        self,
        settings: Settings,
        cloud: Cloud,
        sources: Sources,
        inputs: FilterInputs,
        rules: RulesInForce,
        closed: Callable[[], list[str]],
        offline: Offline | None = None,
    ) -> None:
        """`closed` names the listeners that were asked for and are not open.

        OSError, whose `filename` is the address, when the port cannot be opened.
        """
        self._settings = settings
        self._cloud = cloud
        self._sources = sources
        self._inputs = inputs
        self._rules = rules
        self._closed = closed
        self._offline = offline
        family = socket.AF_INET6 if ":" in settings.listen else socket.AF_INET
        address = (settings.listen, settings.admin_port)
        try:
            self._socket = socket.create_server(address, family=family)
        except OSError as error:
            raise OSError(error.errno, error.strerror, f"{settings.listen}:{settings.admin_port}") from error

    async def start(self) -> None:
        app = web.Application(middlewares=[_refusing_web_pages(self._settings.allowed_hosts)])
        app.add_routes(
            [
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._metrics),
                web.get("/debug", self._index),
                web.get("/debug/servers", self._shown(self._servers)),
                web.get("/debug/sources", self._shown(self._all_sources)),
                web.get("/debug/views", self._shown(self._all_views)),
                web.get("/debug/rules", self._shown(self._all_rules)),
                web.get("/debug/offline", self._shown(self._without_cloud)),
                web.get("/debug/explain", self._explain),
            ]
        )
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.SockSite(runner, self._socket).start()

    def close(self) -> None:
        self._socket.close()

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        if not self._rules.is_known:
            why = f"the filter rules are not known yet: {self._rules.why_unknown}\n"
            return web.Response(status=503, text=why)
        closed = self._closed()
        if closed:
            return web.Response(status=503, text=f"not open: {', '.join(closed)}\n")
        return web.Response(text="ok\n")

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(
            body=metrics.exposition(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        )

    async def _index(self, request: web.Request) -> web.Response:
        paths = sorted({route.resource.canonical for route in request.app.router.routes() if route.resource})
        return web.Response(text="\n".join(paths) + "\n")

    async def _explain(self, request: web.Request) -> web.Response:
        asked = {name: request.query.get(name, "") for name in ("component", "resource", "namespace", "name")}
        told = explain(
            self._rules.rules, self._sources, self._inputs, verb=request.query.get("verb", "list"), **asked
        )
        if request.query.get("format") == "json" or "json" in request.headers.get("Accept", ""):
            return _json(told)
        return web.Response(text=told.text)

    def _shown(self, collect: Callable[[], Any]) -> Page:
        async def page(_request: web.Request) -> web.Response:
            return _json(collect())

        return page

    def _servers(self) -> list[dict[str, Any]]:
        return [
            {"server": str(each.server), "condition": each.condition, "reason": each.reason}
            for each in self._cloud.servers
        ]

    def _without_cloud(self) -> dict[str, Any]:
        return self._offline.describe() if self._offline is not None else {}

    def _all_sources(self) -> list[dict[str, Any]]:
        return [_source(each) for each in self._sources]

    def _all_views(self) -> list[dict[str, Any]]:
        return [
            {
                "component": key.component,
                "verb": key.verb,
                "path": source.list_watch.path,
                "encoding": source.list_watch.encoding,
                "namespace": key.scope.namespace,
                "labelSelector": key.scope.labels.canonical,
                "fieldSelector": key.scope.fields.canonical,
                "metadataOnly": key.metadata_only,
                "filters": [each.name for each in opened.filters],
                "watchers": len(opened.view.watchers),
                "version": opened.view.version,
                "oldest": opened.view.oldest_resumable,
                "evaluations": opened.view.projection.evaluations,
            }
            for source in self._sources
            for key, opened in source.views.items()
        ]

    def _all_rules(self) -> dict[str, Any]:
        rules = self._rules.rules
        return {
            "known": self._rules.is_known,
            "digest": rules.digest,
            "problems": [{"key": each.key, "text": each.text, "why": each.why} for each in rules.problems],
        }


def _refusing_web_pages(names: frozenset[str]) -> Middleware:
    """The pages tell what is on the node; a web page in a browser there must not read them."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        host, port = request.transport.get_extra_info("sockname")[:2] if request.transport else ("", 0)
        try:
            refuse_web_pages(OwnAddress(host, port, names), "", request.headers.items())
        except StatusError as error:
            return web.Response(body=error.to_json(), status=error.code, content_type="application/json")
        return await handler(request)

    return check


def _source(source: Source) -> dict[str, Any]:
    reflector = source.reflector
    return {
        "path": source.list_watch.path,
        "labelSelector": source.list_watch.label_selector,
        "fieldSelector": source.list_watch.field_selector,
        "encoding": source.list_watch.encoding,
        "metadataOnly": source.list_watch.metadata_only,
        "identity": source.user or "hub",
        "state": reflector.state,
        "error": str(reflector.error) if reflector.error else "",
        "complete": source.store.complete,
        "version": source.store.version,
        "objects": len(source.store),
        "lists": reflector.lists,
        "watches": reflector.watches,
        "views": len(source.views),
    }


def _json(document: Any) -> web.Response:
    return web.Response(
        body=orjson.dumps(document, option=orjson.OPT_INDENT_2), content_type="application/json"
    )
