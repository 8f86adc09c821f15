"""Waits end when the node is Ready through the hub, and say what was missing where it is not."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import urlsplit

import pytest

from addons.install.waiting import (
    NotReadyError,
    count_writes,
    wait_for_hub,
    wait_for_node,
    wait_until_gone,
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
    ("node", "why"), [(READY, ""), (IDLE, "no network"), ({}, "kubelet has not said so yet")]
)
def test_what_a_node_says(node: dict[str, Any], why: str) -> None:
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
        (READY, 3, "kubelet has not spoken to the hub"),
        (IDLE, 0, "the node is not Ready: no network"),
        (None, 0, "cannot tell whether the node is Ready: not found"),
    ],
)
async def test_what_was_missing_last_is_told(node: object, writes: float, why: str) -> None:
    async with small_api({"/metrics": METRICS, "/api/v1/nodes/n1": node}) as url:
        with pytest.raises(NotReadyError, match=why):
            await wait_for_node(hub_at(url), "n1", writes, 0.0)


async def test_a_hub_that_is_not_there_or_not_ready_is_told() -> None:
    with pytest.raises(NotReadyError, match="does not answer"):
        await wait_for_hub(Settings(admin_port=1), 0.0)
    async with small_api({}) as url:
        with pytest.raises(NotReadyError, match="is not ready"):
            await wait_for_hub(hub_at(url), 0.0)


async def test_a_hub_is_gone_when_nobody_answers() -> None:
    async with small_api({"/healthz": "ok"}) as url:
        with pytest.raises(NotReadyError, match="the hub still runs"):
            await wait_until_gone(hub_at(url), 0.0)
    await wait_until_gone(hub_at(url), time.monotonic() + 30)
