"""The reports of a hub about itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from addons.telemetry import metrics
from addons.telemetry.component_traffic import ComponentTraffic
from addons.ui.reports.status import components, journal, servers, status
from kube.requests.request_info import ResourceType
from tests.addons.support.hub_parts import HubParts
from tests.addons.support.offline_process import Process
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


async def test_who_asked_the_one_with_most_bytes_first(parts: HubParts) -> None:
    hub = running_hub(parts)
    hub.traffic.began("kubelet", "pods", 404, is_watch=False).totals.sent += 10
    proxy = hub.traffic.began("kube-proxy", "endpointslices.discovery.k8s.io", 200, is_watch=True)
    proxy.totals.sent += 500
    first, second = components(hub)
    assert first.items() >= {"component": "kube-proxy", "bytes": 500, "watches": 1, "errors": 0}.items()
    assert first["reads"] == ["endpointslices.discovery.k8s.io"]
    assert first["filters"][0] == "discardcloudservice"
    assert second.items() >= {"component": "kubelet", "requests": 1, "errors": 1}.items()


async def test_who_is_silent_is_left_out_but_for_an_open_watch(parts: HubParts) -> None:
    now = [1.8e9]
    hub = replace(running_hub(parts), traffic=ComponentTraffic(lambda: now[0]))
    hub.traffic.began("quiet", "", 200, is_watch=True)
    hub.traffic.began("gone", "", 200, is_watch=False)
    assert {each["component"] for each in components(hub)} == {"quiet", "gone"}
    now[0] += 61 * 60
    hub.traffic.began("kubelet", "", 200, is_watch=False)
    assert {each["component"] for each in components(hub)} == {"quiet", "kubelet"}


async def test_what_waits_and_what_was_dropped(parts: HubParts, tmp_path: Path) -> None:
    metrics.JOURNAL_DROPPED.labels("event", "no room").inc(3)
    async with Process(tmp_path).running() as offline:
        hub = replace(running_hub(parts), offline=offline)
        offline._journal.put_event("POST", "/api/v1/namespaces/x/events", "application/json", b"{}")
        found = journal(hub)
    assert (found["waiting"], found["events"], found["statuses"]) == (1, 1, [])
    dropped = {(each["kind"], each["reason"]): each["count"] for each in found["dropped"]}
    assert dropped["event", "no room"] >= 3


async def test_a_hub_that_keeps_nothing(parts: HubParts) -> None:
    assert journal(running_hub(parts)).items() >= {"waiting": 0, "events": 0, "statuses": []}.items()
