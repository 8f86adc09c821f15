"""The report `status`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from addons.telemetry import metrics
from addons.ui.reports.status import servers, status
from kube.requests.request_info import ResourceType
from tests.addons.support.hub_parts import HubParts
from tests.addons.support.report_parts import SERVICES, read, running_hub
from tests.addons.support.samples import node, service
from tests.cloud.scriptable import ScriptableCloud

NODES = ResourceType("", "v1", "nodes")


async def test_where_a_hub_stands(parts: HubParts, cloud: ScriptableCloud) -> None:
    cloud.store.create(service("web"))
    await read(parts, SERVICES)
    hub = running_hub(parts, {"filter_endpoints": "kubelet/nodes"})
    found = status(hub)
    assert (found["node"], found["pool"], found["mode"]) == ("n1", "", "edge")
    assert found["cloud"]["up"] is True
    assert found["rules"]["problems"] == 1
    assert found["sources"]["all"] == 1
    assert (found["journal"], found["closedListeners"]) == (0, [])


async def test_an_outage(parts: HubParts) -> None:
    hub = running_hub(parts)
    hub.cloud.servers[0].failed("no route")
    assert status(hub)["cloud"]["up"] is False
    assert servers(hub) == [{"server": "https://a:6443", "condition": "down", "reason": "no route"}]


async def test_the_pool_is_the_options_or_the_labels(parts: HubParts, cloud: ScriptableCloud) -> None:
    cloud.store.create(
        node("n1") | {"metadata": {"name": "n1", "labels": {"apps.openyurt.io/nodepool": "p1"}}}
    )
    await read(parts, NODES)
    assert status(running_hub(parts))["pool"] == "p1"
    assert status(running_hub(parts, pool="p2"))["pool"] == "p2"


async def test_what_copies_gave_is_of_components_alone(parts: HubParts) -> None:
    hub = running_hub(parts)
    for component in ("kubelet", "edgehub"):
        totals = hub.traffic.began(component, "", 200, is_watch=False).totals
        totals.sent, totals.copied = 1000, 600
    metrics.UPSTREAM_BYTES.labels("down", "https://a:6443").inc(400)
    told = status(hub)["bytes"]
    assert (told["sent"], told["fromCopies"]) == (1000, 600)
    assert told["linkDownToday"] >= 400


@pytest.mark.parametrize(
    ("listen", "port", "url"),
    [
        ("127.0.0.1", 10261, "http://127.0.0.1:10261"),
        ("0.0.0.0", 80, "http://127.0.0.1:80"),  # noqa: S104 - nothing binds here
        ("::", 80, "http://[::1]:80"),
        ("127.0.0.1", 0, ""),
    ],
)
async def test_where_processes_of_the_node_reach_the_hub(
    parts: HubParts, listen: str, port: int, url: str
) -> None:
    hub = running_hub(parts)
    hub = replace(hub, settings=replace(hub.settings, listen=listen, port=port))
    assert status(hub)["url"] == url
