"""The admin port: health, readiness, metrics, and pages that show people what the hub is doing."""

from __future__ import annotations

import asyncio
import socket
from html import escape

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler

from addons.telemetry import metrics
from addons.ui import debug_pages, pod_updates
from addons.ui.attached.attachments import Attachments
from addons.ui.dry_run import deadline, in_slices
from addons.ui.handlers import CLOSED, HUB, QUEUE, ReportQueue, comes_from_operator, for_operator
from addons.ui.live import stream_pages
from addons.ui.page import server as page
from addons.ui.page.timeline import Timeline
from addons.ui.readable import item_tree
from addons.ui.reports.hub_reports import why_unready
from addons.ui.reports.rule_trial import MAX_TEXT
from addons.ui.running_hub import RunningHub
from addons.views.source import Source
from kube.errors import StatusError
from kube.http.bounded_server import BoundedServer
from kube.http.browser_check import OwnAddress, refuse_web_pages

NODE = "node"
"""The check that `/readyz?exclude=` may leave out, in kube-apiserver's terms: whether the hub is its node's."""

routes = web.RouteTableDef()


class Admin:
    """Serves on a port from `start` to `close`."""

    def __init__(
        self, hub: RunningHub, attachments: Attachments, timeline: Timeline, listening: socket.socket
    ) -> None:
        app = web.Application(middlewares=[_refuse_web_pages], client_max_size=MAX_TEXT)
        app[HUB], app[QUEUE], app[CLOSED] = hub, ReportQueue(), asyncio.Event()
        app[stream_pages.ATTACHMENTS] = attachments
        app[stream_pages.FOLLOWERS] = stream_pages.followers()
        app[pod_updates.REQUEST_LIMIT] = pod_updates.request_limit()
        app[page.LIVE_PAGE] = page.LivePage(hub, timeline)
        for table in (routes, pod_updates.routes, debug_pages.routes, page.routes, stream_pages.routes):
            app.add_routes(table)
        self.app = app
        self._socket = listening
        self._server = BoundedServer(app, metrics.CONNECTIONS_REFUSED.labels("admin").inc)

    async def start(self) -> None:
        await self._server.start([self._socket])

    def close(self) -> None:
        self.app[CLOSED].set()
        self._server.refuse_more()


@routes.get("/healthz")
async def _healthz(_request: web.Request) -> web.Response:
    return web.Response(text="ok\n")


@routes.get("/readyz")
async def _readyz(request: web.Request) -> web.Response:
    hub = request.app[HUB]
    excluded = request.query.getall("exclude", ())
    if missing := why_unready(hub, is_to_be_node=NODE in excluded):
        return web.Response(status=503, text=f"{missing}\n")
    lender, uplink = hub.cloud.lender, hub.cloud.leading_uplink
    route = f", by the uplink {uplink}" if uplink is not None else ""
    return web.Response(text=f"ok, with the link of node {lender}\n" if lender else f"ok{route}\n")


@routes.get("/metrics")
async def _metrics(_request: web.Request) -> web.Response:
    # With a hundred components it takes 0.15 s.
    body = await asyncio.to_thread(metrics.exposition)
    return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})


@routes.get("/debug")
@routes.get("/debug/")
async def _index(request: web.Request) -> web.Response:
    paths = ["/", "/healthz", "/metrics", "/readyz", "/debug"]
    paths += (f"/debug/{name}" for name in sorted(debug_pages.PAGES))
    # The address of mitmproxy's web interface has its token.
    if (interface := request.app[HUB].web_address()) and await comes_from_operator(request):
        paths.append(interface)
    if "text/html" not in request.headers.get("Accept", ""):
        return web.Response(text="\n".join(paths) + "\n")
    links = "".join(f'<li><a href="{escape(path)}">{escape(path)}</a>' for path in paths)
    text = (
        f'<!doctype html><html lang="en"><title>Edgehub: pages</title><h1>Pages</h1><ul>{links}</ul></html>'
    )
    return web.Response(text=text, content_type="text/html")


@routes.get("/v1/healthz")
async def _yurthub_healthz(_request: web.Request) -> web.Response:
    """The path of YurtHub's probes, and of tools on its nodes; so are the two below."""
    return web.Response(text="OK")


@routes.get("/v1/readyz")
async def _yurthub_readyz(request: web.Request) -> web.Response:
    if missing := why_unready(request.app[HUB]):
        return web.Response(status=500, text=missing)
    return web.Response(text="OK")


@routes.get("/pods")
@for_operator
async def _pods(request: web.Request) -> web.Response:
    """The pods of this node as kubelet has them, for the operator alone: their specifications hold secrets."""
    source = _kubelets(request.app[HUB])
    if source is None:
        raise StatusError(404, "NotFound", "the hub has no pods of this node: kubelet has not listed them")
    store = source.store
    async with request.app[QUEUE].take():
        items = [item_tree(item) async for item in in_slices(store, deadline())]
    listed = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": str(store.version)}}
    return web.Response(body=orjson.dumps({**listed, "items": items}), content_type="application/json")


def _kubelets(hub: RunningHub) -> Source | None:
    """The copy of the pods that are bound to this node; kubelet asks for them by this selector."""
    selector = f"spec.nodeName={hub.settings.node}"
    for source in hub.sources:
        list_watch = source.list_watch
        is_kubelets = (
            not source.user and not list_watch.metadata_only and list_watch.field_selector == selector
        )
        if is_kubelets and list_watch.type.resource == "pods" and source.store.complete:
            return source
    return None


@web.middleware
async def _refuse_web_pages(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The pages show what is on the node. A web page that a browser on the node has open must not read them."""
    host, port = request.transport.get_extra_info("sockname")[:2] if request.transport else ("", 0)
    own = OwnAddress(host, port, request.app[HUB].settings.allowed_hosts)
    # An absolute target says whom it is for, and the header Host does not count then (RFC 9112, 3.2.2).
    target = request.raw_path
    authority = "" if target.startswith("/") else target.partition("://")[2].partition("/")[0]
    try:
        refuse_web_pages(own, authority, lambda name: request.headers.getall(name, []))
        return await handler(request)
    except StatusError as error:
        return web.Response(body=error.to_json(), status=error.code, content_type="application/json")
