"""Serves the admin port: health, readiness, metrics, and pages that show people what the hub is doing."""

from __future__ import annotations

import socket
from collections.abc import Callable
from html import escape

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from addons.requests.browser_check import OwnAddress, refuse_web_pages
from addons.telemetry import metrics
from addons.ui.attached.attachments import Attachments
from addons.ui.debug_pages import PAGES, DebugPages
from addons.ui.judgement import deadline, in_slices
from addons.ui.live.attach_page import AttachPage
from addons.ui.live.observe_page import ObservePage
from addons.ui.operator_check import comes_from_operator, for_operator
from addons.ui.page.server import PageServer
from addons.ui.readable import object_tree
from addons.ui.report_queue import ReportQueue
from addons.ui.reports.rule_trial import MAX_TEXT
from addons.ui.running_hub import RunningHub
from addons.views.source import Source
from kube.errors import StatusError
from kube.http.bounded_server import BoundedServer


class Admin:
    """Serves on the admin port from `start` to `close`."""

    def __init__(self, hub: RunningHub, attachments: Attachments, listening: socket.socket) -> None:
        self._hub = hub
        self._socket = listening
        reports = ReportQueue()
        self._pages = DebugPages(hub, reports)
        self._page = PageServer(hub, reports)
        self._yurthub = YurtHubPages(hub, reports, self._why_unready)
        self._observe = ObservePage(hub)
        self._attach = AttachPage(attachments, hub.settings.plain_users)
        self._server: BoundedServer | None = None

    async def start(self) -> None:
        guard = _refusing_web_pages(self._hub.settings.allowed_hosts)
        app = web.Application(middlewares=[guard], client_max_size=MAX_TEXT)
        app.add_routes(
            [
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._metrics),
                web.get("/debug", self._index),
                web.get("/debug/", self._index),
                *self._pages.routes(),
                *self._page.routes(),
                *self._yurthub.routes(),
                *self._observe.routes(),
                *self._attach.routes(),
            ]
        )
        self._server = BoundedServer(app, metrics.CONNECTIONS_REFUSED.labels("admin").inc)
        await self._server.start([self._socket])
        self._page.start()

    def close(self) -> None:
        self._page.close()
        self._observe.close()
        self._attach.close()
        if self._server is not None:
            self._server.refuse_more()

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        if missing := self._why_unready():
            return web.Response(status=503, text=f"{missing}\n")
        lender, uplink = self._hub.cloud.lender, self._hub.cloud.leading_uplink
        way = f", by the uplink {uplink}" if uplink is not None else ""
        return web.Response(text=f"ok, with the link of node {lender}\n" if lender else f"ok{way}\n")

    def _why_unready(self) -> str:
        """What keeps the hub from serving; "" for nothing."""
        if missing := self._hub.waits_for():
            return missing
        rules = self._hub.rules
        if not rules.is_known:
            return f"the filter rules are not known yet: {rules.why_unknown}"
        if refusal := self._hub.cloud.refusal:
            return refusal
        closed = self._hub.closed()
        return f"not open: {', '.join(closed)}" if closed else ""

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(
            body=metrics.exposition(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        )

    async def _index(self, request: web.Request) -> web.Response:
        interface = await self._interface(request)
        debug_pages = (f"/debug/{name}" for name in sorted(PAGES))
        paths = ["/", "/healthz", "/metrics", "/readyz", "/debug", *debug_pages]
        if "text/html" not in request.headers.get("Accept", ""):
            return web.Response(text="\n".join((*paths, *interface)) + "\n")
        links = "".join(f'<li><a href="{escape(path)}">{escape(path)}</a>' for path in (*paths, *interface))
        text = f'<!doctype html><html lang="en"><title>Edgehub: pages</title><h1>Pages</h1><ul>{links}</ul></html>'
        return web.Response(text=text, content_type="text/html")

    async def _interface(self, request: web.Request) -> tuple[str, ...]:
        """The address of mitmproxy's web interface, with its token, for the operator of the node alone."""
        address = self._hub.web_address()
        if not address:
            return ()
        is_operator = await comes_from_operator(request, self._hub.settings.plain_users)
        return (address,) if is_operator else ()


def _refusing_web_pages(names: frozenset[str]) -> Middleware:
    """The pages show what is on the node. A web page that a browser on the node has open must not read them."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        host, port = request.transport.get_extra_info("sockname")[:2] if request.transport else ("", 0)
        try:
            refuse_web_pages(OwnAddress(host, port, names), _authority_of(request), request.headers.items())
            return await handler(request)
        except StatusError as error:
            return web.Response(body=error.to_json(), status=error.code, content_type="application/json")

    return check


def _authority_of(request: web.Request) -> str:
    """Whom an absolute target names, which counts and not the header Host (RFC 9112, 3.2.2); "" for another target."""
    target = request.raw_path
    return "" if target.startswith("/") else target.partition("://")[2].partition("/")[0]


class YurtHubPages:
    """`/v1/healthz`, `/v1/readyz` and `/pods`: what YurtHub's probes, and tools on its nodes, ask for."""

    def __init__(self, hub: RunningHub, reports: ReportQueue, why_unready: Callable[[], str]) -> None:
        """`why_unready` is "" while the hub is ready."""
        self._hub = hub
        self._reports = reports
        self._why_unready = why_unready

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/v1/healthz", self._healthz),
            web.get("/v1/readyz", self._readyz),
            web.get("/pods", for_operator(self._hub.settings.plain_users, self._pods)),
        ]

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="OK")

    async def _readyz(self, _request: web.Request) -> web.Response:
        if missing := self._why_unready():
            return web.Response(status=500, text=missing)
        return web.Response(text="OK")

    async def _pods(self, request: web.Request) -> web.Response:
        """The pods of this node as kubelet has them, for the operator alone: their specifications hold secrets."""
        source = self._kubelets()
        if source is None:
            raise StatusError(
                404, "NotFound", "the hub keeps no pods of this node: kubelet has not asked for them"
            )
        store = source.store
        async with self._reports.take():
            items = [
                object_tree(store.codec.encoding, store.api_version, store.kind, item.raw)
                async for item in in_slices(store, deadline())
            ]
        listed = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": str(store.version)}}
        return web.Response(body=orjson.dumps({**listed, "items": items}), content_type="application/json")

    def _kubelets(self) -> Source | None:
        """The copy of the pods that are bound to this node; kubelet asks for them by this selector."""
        selector = f"spec.nodeName={self._hub.settings.node}"
        for source in self._hub.sources:
            list_watch = source.list_watch
            of_kubelet = (
                not source.user and not list_watch.metadata_only and list_watch.field_selector == selector
            )
            if of_kubelet and list_watch.type.resource == "pods" and source.store.complete:
                return source
        return None
