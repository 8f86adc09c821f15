"""The pages of YurtHub's admin port that its probes, and tools on its nodes, ask for: the same answers from the hub."""

from __future__ import annotations

from collections.abc import Callable

import orjson
from aiohttp import web

from addons.ui.operator_check import refuse_others
from addons.ui.readable import object_tree
from addons.ui.report_queue import ReportQueue
from addons.ui.reports.evaluation import deadline, in_slices
from addons.ui.reports.running_hub import RunningHub
from addons.views.source import Source
from kube.errors import StatusError


class YurtHubPages:
    """`/v1/healthz`, `/v1/readyz` and `/pods`, for the admin server."""

    def __init__(self, hub: RunningHub, reports: ReportQueue, why_unready: Callable[[], str]) -> None:
        """`why_unready` is "" while the hub is ready."""
        self._hub = hub
        self._reports = reports
        self._why_unready = why_unready

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/v1/healthz", self._healthz),
            web.get("/v1/readyz", self._readyz),
            web.get("/pods", self._pods),
        ]

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="OK")

    async def _readyz(self, _request: web.Request) -> web.Response:
        if missing := self._why_unready():
            return web.Response(status=500, text=missing)
        return web.Response(text="OK")

    async def _pods(self, request: web.Request) -> web.Response:
        """The pods of this node as kubelet has them, for the operator alone: their specifications hold secrets."""
        await refuse_others(request, self._hub.settings.plain_users)
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
