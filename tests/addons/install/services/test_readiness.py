"""Waits for a hub and a node: how they end, and the missing condition in the error."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from urllib.parse import urlsplit

import pytest

from addons.install.services.readiness import (
    NotReadyError,
    count_writes,
    start_of,
    wait_for_hub,
    wait_for_kubelet,
    wait_for_node,
    wait_until_gone,
    watch_hub,
    why_not_ready,
)
from addons.settings import Settings
from tests.addons.support.small_api import small_api

READY = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
IDLE = {"status": {"conditions": [{"type": "Ready", "status": "False", "message": "no network"}]}}
METRICS = """\
edgehub_requests_total{code="200",component="kubelet",resource="leases",route="lease",verb="update"} 2.0
edgehub_requests_total{code="200",component="kubelet",resource="nodes",route="relay",verb="patch"} 1.0
edgehub_requests_total{code="200",component="kubelet",resource="nodes",route="relay",verb="get"} 7.0
edgehub_requests_total{code="403",component="kubelet",resource="nodes",route="relay",verb="patch"} 7.0
edgehub_requests_total{code="201",component="kubelet",resource="events",route="relay",verb="create"} 7.0
"""


def hub_at(url: str) -> Settings:
    port = urlsplit(url).port
    assert port is not None
    return Settings(port=port, admin_port=port)


@pytest.mark.parametrize(
    ("node", "why"), [(READY, ""), (IDLE, "no network"), ({}, "kubelet has not reported Ready yet")]
)
def test_a_node_that_is_not_ready_is_reported_with_the_reason(node: dict[str, Any], why: str) -> None:
    assert why_not_ready(node) == why


async def test_a_ready_node_ends_the_wait() -> None:
    async with small_api({"/readyz": "ok", "/metrics": METRICS, "/api/v1/nodes/n1": READY}) as url:
        hub = hub_at(url)
        await wait_for_hub(hub, time.monotonic() + 30)
        assert await count_writes(hub) == 3
        await wait_for_node(hub, "n1", 2, time.monotonic() + 30)


@pytest.mark.parametrize(
    ("node", "writes", "why"),
    [
        (READY, 3, "kubelet has not called the hub"),
        (IDLE, 0, "the node is not Ready: no network"),
        (None, 0, "cannot read whether the node is Ready: not found"),
    ],
)
async def test_the_wait_for_a_node_fails_with_the_last_missing_condition(
    node: object, writes: float, why: str
) -> None:
    async with small_api({"/metrics": METRICS, "/api/v1/nodes/n1": node}) as url:
        with pytest.raises(NotReadyError, match=why):
            await wait_for_node(hub_at(url), "n1", writes, 0.0)


async def test_a_hub_that_is_down_or_not_ready_fails_the_wait() -> None:
    with pytest.raises(NotReadyError, match="does not answer"):
        await wait_for_hub(Settings(admin_port=1), 0.0)
    async with small_api({}) as url:
        with pytest.raises(NotReadyError, match="is not ready"):
            await wait_for_hub(hub_at(url), 0.0)


async def test_a_hub_is_gone_once_its_admin_port_refuses_connections() -> None:
    async with small_api({"/healthz": "ok"}) as url:
        with pytest.raises(NotReadyError, match="the hub still runs"):
            await wait_until_gone(hub_at(url), 0.0)
    await wait_until_gone(hub_at(url), time.monotonic() + 30)


def hub_that_started(at: str) -> dict[str, Any]:
    return {"/readyz": "ok", "/debug/status": {"started": at}, "/metrics": METRICS}


async def test_the_wait_distinguishes_the_new_hub_from_the_previous_one() -> None:
    """kubelet replaces a static pod some time after its manifest has changed."""
    answers = hub_that_started("first")
    async with small_api(answers) as url:
        hub = hub_at(url)
        assert await start_of(hub) == "first"
        with pytest.raises(NotReadyError, match="the previous hub still answers"):
            await wait_for_hub(hub, 0.0, previous="first")
        waiting = asyncio.create_task(wait_for_hub(hub, time.monotonic() + 60, previous="first"))
        answers.update(hub_that_started("second"))
        await waiting
    assert await start_of(hub) is None
    async with small_api({"/debug/status": {}}) as url:
        assert await start_of(hub_at(url)) == ""


async def test_a_hub_that_stays_ready_passes_the_check() -> None:
    async with small_api(hub_that_started("first")) as url:
        await watch_hub(hub_at(url), 0.3)
        await wait_for_kubelet(hub_at(url), 0.0)


@pytest.mark.parametrize(
    ("later", "why"),
    [
        (hub_that_started("second"), "the hub has ended, and was restarted"),
        ({"/debug/status": {"started": "first"}}, "the hub is no longer ready: not found"),
    ],
)
async def test_a_hub_that_does_not_stay_ready_fails_the_check(later: dict[str, Any], why: str) -> None:
    class OnceThen(dict[str, Any]):
        """Respond as one hub until it has reported its start time, then as another hub."""

        def __init__(self, first: dict[str, Any], later: dict[str, Any]) -> None:
            super().__init__(first)
            self._later = later

        def get(self, path: str, default: Any = None) -> Any:
            found = super().get(path, default)
            if path == "/debug/status":
                self.clear()
                self.update(self._later)
            return found

    async with small_api(OnceThen(hub_that_started("first"), later)) as url:
        with pytest.raises(NotReadyError, match=why):
            await watch_hub(hub_at(url), 60)


async def test_a_hub_without_requests_of_kubelet_fails_the_wait() -> None:
    async with small_api({"/metrics": ""}) as url:
        with pytest.raises(NotReadyError, match="kubelet has not called the hub"):
            await wait_for_kubelet(hub_at(url), 0.0)
    with pytest.raises(NotReadyError, match="does not answer any more"):
        await wait_for_kubelet(Settings(admin_port=1), 0.0)
