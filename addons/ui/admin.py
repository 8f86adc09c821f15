"""The admin port's paths: health, readiness, metrics, and pages that show the hub's state."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import Mapping

import orjson

from addons.telemetry import metrics
from addons.ui import debug_pages
from addons.ui.admin_server import AdminServer, Routes
from addons.ui.attached.attachments import Attachments
from addons.ui.dry_run import deadline, in_slices
from addons.ui.handlers import (
    AdminHub,
    AdminPage,
    AdminRequest,
    AdminResponse,
    ReportQueue,
    comes_from_operator,
    file_answer,
    for_operator,
    text_answer,
)
from addons.ui.live.stream_pages import StreamPages
from addons.ui.page.server import FILES, LivePage, page_file
from addons.ui.page.timeline import Timeline
from addons.ui.pod_updates import PATH, UpdatePage
from addons.ui.readable import item_tree
from addons.ui.reports.hub_reports import REPORTS, why_unready
from addons.ui.running_hub import RunningHub
from addons.views.source import Source
from kube.errors import StatusError

NODE = "node"
"""The check that `/readyz?exclude=` may skip, as in kube-apiserver: whether the hub matches its node."""


def admin_server(hub: RunningHub, attachments: Attachments, timeline: Timeline) -> AdminServer:
    """Create the server of a hub's admin port."""
    asked = AdminHub(hub, ReportQueue(), asyncio.Event())
    return AdminServer(asked, _routes(LivePage(hub, timeline), StreamPages(attachments), UpdatePage()))


def _routes(page: LivePage, streams: StreamPages, updates: UpdatePage) -> Routes:
    """Return the handlers of all paths by method, with access control."""
    pages: dict[str, Mapping[str, AdminPage]] = {
        "/": {"GET": page.document},
        **{f"/{name}": {"GET": page_file(name)} for name in FILES},
        "/events": {"GET": page.events},
        "/try": {"POST": for_operator(page.try_rules)},
        "/healthz": {"GET": _healthz},
        "/readyz": {"GET": _readyz},
        "/metrics": {"GET": _metrics},
        "/v1/healthz": {"GET": _yurthub_healthz},
        "/v1/readyz": {"GET": _yurthub_readyz},
        "/pods": {"GET": for_operator(_pods)},
        "/debug": {"GET": _index},
        "/debug/": {"GET": _index},
        **{f"/debug/{name}": {"GET": debug_pages.asked(name)} for name in (*REPORTS, "explain")},
        "/debug/dump": {"GET": for_operator(debug_pages.asked("dump"))},
        "/debug/support": {"GET": for_operator(debug_pages.asked("support"))},
        "/debug/rules/try": {
            "GET": debug_pages.how_to_try,
            "POST": for_operator(debug_pages.asked("rules/try")),
        },
        "/debug/link": {
            "GET": debug_pages.asked("link"),
            "POST": for_operator(debug_pages.asked("link")),
        },
        "/debug/log": {"GET": for_operator(debug_pages.log)},
        "/debug/requests": {"GET": for_operator(debug_pages.requests)},
        "/debug/profile": {"GET": for_operator(debug_pages.Profiles().page)},
        "/debug/observe": {"GET": for_operator(streams.observe)},
        "/debug/flows": {"GET": for_operator(streams.flows), "POST": for_operator(streams.decide)},
    }
    patterns = {re.compile(re.escape(path)): methods for path, methods in pages.items()}
    return {**patterns, PATH: {"POST": for_operator(updates.update)}}


async def _healthz(_request: AdminRequest) -> AdminResponse:
    return text_answer("ok\n")


async def _readyz(request: AdminRequest) -> AdminResponse:
    hub = request.hub
    excluded = request.parameters.get("exclude", ())
    if missing := why_unready(hub, is_to_be_node=NODE in excluded):
        return text_answer(f"{missing}\n", status=503)
    lender, uplink = hub.cloud.lender, hub.cloud.working_uplink
    route = f", by the uplink {uplink}" if uplink is not None else ""
    return text_answer(f"ok, with the link of node {lender}\n" if lender else f"ok{route}\n")


async def _metrics(_request: AdminRequest) -> AdminResponse:
    # In a thread: with a hundred components it takes 0.15 s.
    body = await asyncio.to_thread(metrics.exposition)
    return file_answer(body, "text/plain; version=0.0.4; charset=utf-8")


async def _index(request: AdminRequest) -> AdminResponse:
    paths = ["/", "/healthz", "/metrics", "/readyz", "/debug"]
    paths += (f"/debug/{name}" for name in sorted(debug_pages.PAGES))
    # The URL of mitmproxy's web interface contains its token.
    if (interface := request.hub.web_address()) and await comes_from_operator(request):
        paths.append(interface)
    if not request.accepts("text/html"):
        return text_answer("\n".join(paths) + "\n")
    links = "".join(f'<li><a href="{html.escape(path)}">{html.escape(path)}</a>' for path in paths)
    text = (
        f'<!doctype html><html lang="en"><title>Edgehub: pages</title><h1>Pages</h1><ul>{links}</ul></html>'
    )
    return text_answer(text, "text/html")


async def _yurthub_healthz(_request: AdminRequest) -> AdminResponse:
    """Answer the path that YurtHub's probes and its nodes' tools use, like the handler below."""
    return text_answer("OK")


async def _yurthub_readyz(request: AdminRequest) -> AdminResponse:
    if missing := why_unready(request.hub):
        return text_answer(missing, status=500)
    return text_answer("OK")


async def _pods(request: AdminRequest) -> AdminResponse:
    """Answer with this node's pods as kubelet has them. Only for the operator: pod specifications may contain
    secrets.
    """
    source = _kubelets(request.hub)
    if source is None:
        raise StatusError(404, "NotFound", "the hub has no pods of this node: kubelet has not listed them")
    store = source.store
    async with request.asked.queue.slot():
        items = [item_tree(item) async for item in in_slices(store, deadline())]
    listed = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": str(store.version)}}
    return file_answer(orjson.dumps({**listed, "items": items}), "application/json")


def _kubelets(hub: RunningHub) -> Source | None:
    """Return the source of the pods bound to this node, found by the selector that kubelet uses; None without one."""
    selector = f"spec.nodeName={hub.settings.node}"
    for source in hub.sources:
        list_watch = source.list_watch
        is_kubelets = (
            not source.user and not list_watch.metadata_only and list_watch.field_selector == selector
        )
        if is_kubelets and list_watch.type.resource == "pods" and source.store.complete:
            return source
    return None
