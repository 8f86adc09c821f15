"""A hub's reports on itself, its copies and its rules."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from addons.filters.chain import FILTERS
from addons.link.servers import Server
from addons.pool.leader_selector import LeaderSelector
from addons.pool.peer_reader import PeerReader, SharedSources
from addons.pool.peers.own_peer import OwnPeer
from addons.pool.peers.peer import PeerHub, PeerRole
from addons.pool.peers.peer_probes import Peers
from addons.rules.filter_modules import FilterModules
from addons.telemetry import metrics
from addons.telemetry.component_traffic import ComponentTraffic
from addons.ui.hub_records import Records
from addons.ui.reports.hub_reports import (
    components,
    journal,
    rules,
    servers,
    sources,
    status,
    views,
    watchers,
)
from addons.ui.reports.text import rules_text, status_text
from kube.requests.request_info import ResourceType
from tests.addons.support.filter_plugins import text_of, write
from tests.addons.support.hub_world import SERVICES as SERVICES_TYPE
from tests.addons.support.hub_world import HubWorld
from tests.addons.support.offline_process import Process
from tests.addons.support.samples import SERVICES, cloud_service, node, service
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.faults import Refuse
from tests.cloud.scriptable.request_log import matching


async def test_sources_views_and_watches_are_reported(parts: HubWorld, cloud: ScriptableCloud) -> None:
    cloud.store.create(service("web"))
    cloud.store.create(cloud_service("lb"))
    hub = parts.running_hub({"filter_discardcloudservice": "chosen/services"})
    async with parts.watch(f"{SERVICES}?watch=true&resourceVersion=0&timeoutSeconds=9", "chosen") as watch:
        await watch.event()
        (source,) = sources(hub)
        assert (
            source.items()
            >= {"path": SERVICES, "objects": 2, "error": "", "nextTry": None, "from": "cloud"}.items()
        )
        assert 0 <= source["age"] < 60
        (view,) = views(hub)
        assert (view["kept"], view["changed"], view["hidden"]) == (1, 0, 1)
        (row,) = watchers(hub)
        assert row.items() >= {"component": "chosen", "watchers": 1, "unread": 0}.items()
    assert sources(hub)[0]["views"] == 1


async def test_a_refused_source_reports_its_next_retry(parts: HubWorld, cloud: ScriptableCloud) -> None:
    hub = parts.running_hub()
    cloud.faults.add(Refuse(403, "Forbidden", "no right"), times=99, when=matching(resource="services"))
    code, _ = await parts.ask(f"{SERVICES}?resourceVersion=0")
    assert code == 403
    (source,) = sources(hub)
    assert "no right" in source["error"]
    assert source["nextTry"] >= 0
    assert source["age"] is None
    assert (views(hub), watchers(hub)) == ([], [])


@pytest.mark.parametrize(
    ("name", "is_relay", "message"),
    [
        ("", False, ""),
        ("cloud", False, "cloud"),
        ("n2", False, "leader n2"),
        ("relay r:1", True, "relay r:1"),
    ],
)
async def test_a_source_reports_the_server_it_reads_from(
    parts: HubWorld, name: str, is_relay: bool, message: str
) -> None:
    await parts.source(SERVICES_TYPE)
    (source,) = parts.sources
    selector = LeaderSelector(
        OwnPeer("n1", 1), Peers(source.client, lambda _: 0), SharedSources(()), lambda: True
    )
    reader = PeerReader(SERVICES_TYPE, source.client, selector, lambda: 0)
    reader.server = name
    if name not in ("", "cloud"):
        reader.peer = PeerHub.at(Server("https", "10.0.0.2", 10269, name))
        reader.peer.role = PeerRole.RELAY if is_relay else PeerRole.LEADER
    source.reflector.upstream = reader
    assert sources(parts.running_hub())[0]["from"] == message


async def test_each_entry_of_the_rules_has_effect_and_origin(parts: HubWorld, cloud: ScriptableCloud) -> None:
    def entry(report: dict[str, Any], component: str) -> dict[str, Any]:
        found: dict[str, Any] = next(each for each in report["entries"] if each["component"] == component)
        return found

    cloud.store.create(service("web"))
    cloud.store.create(cloud_service("lb"))
    data = {
        "discardcloudservice": "chosen, nobody, taken",
        "filter_discardcloudservice": "-taken",
        "nonsense": "x",
        "cache_agents": "more, -kubelet",
    }
    hub = parts.running_hub(data)
    assert await parts.names(f"{SERVICES}?resourceVersion=0", "chosen") == ["web"]
    found = rules(hub)
    chosen = entry(found, "chosen")
    assert chosen.items() >= {"does": "binds", "matched": True, "views": 1, "kept": 1, "hidden": 1}.items()
    assert chosen["from"] == "configmap key discardcloudservice entry 'chosen'"
    assert entry(found, "nobody").items() >= {"does": "binds", "matched": False, "views": 0}.items()
    taken = [each["does"] for each in found["entries"] if each["component"] == "taken"]
    assert taken == ["taken away by an exclusion", "takes away"]
    assert [each["key"] for each in found["problems"]] == ["nonsense"]
    assert found["cachedComponents"] == {"added": ["more"], "removed": ["kubelet"]}
    assert any(each["from"] == "built-in" for each in found["entries"])


async def test_each_filter_counts_its_own_outcomes(parts: HubWorld, cloud: ScriptableCloud) -> None:
    cloud.store.create(service("web"))
    cloud.store.create(cloud_service("lb"))
    hub = parts.running_hub({"discardcloudservice": "chosen", "nodeportisolation": "chosen"})
    assert await parts.names(f"{SERVICES}?resourceVersion=0", "chosen") == ["web"]
    shown = {each["filter"]: each for each in rules(hub)["entries"] if each["component"] == "chosen"}
    assert shown["discardcloudservice"].items() >= {"kept": 1, "changed": 0, "hidden": 1}.items()
    assert shown["nodeportisolation"].items() >= {"kept": 1, "changed": 0, "hidden": 0}.items()


async def test_plugin_filters_are_named(parts: HubWorld, tmp_path: Path) -> None:
    hub = parts.running_hub({})
    assert rules(hub)["filterModules"] == {"filters": [], "problem": ""}
    write(tmp_path / "acme.py", text_of("web"))
    modules = FilterModules(FILTERS, [tmp_path / "acme.py"])
    modules.problem = "it is broken"
    report = rules(replace(hub, modules=modules))
    assert [each["filter"] for each in report["filterModules"]["filters"]] == ["acme-hide"]
    shown = rules_text(report)
    assert "not the hub's: acme-hide (" in shown
    assert "the previous filters stay in force: it is broken" in shown
    assert status(replace(hub, modules=modules))["rules"]["filterModules"] == "it is broken"
    assert "filters:  as before: it is broken" in status_text(status(replace(hub, modules=modules)))


def test_the_status_of_an_unready_hub_has_the_reason(parts: HubWorld) -> None:
    report = {**status(parts.running_hub({})), "unfit": "the cloud was not there yet"}
    assert "not ready: the cloud was not there yet\n" in status_text(report)


async def test_the_status_has_node_cloud_rules_and_sources(parts: HubWorld, cloud: ScriptableCloud) -> None:
    cloud.store.create(service("web"))
    await parts.source(SERVICES_TYPE)
    hub = parts.running_hub({"filter_endpoints": "kubelet/nodes"})
    found = status(hub)
    assert (found["node"], found["pool"], found["mode"]) == ("n1", "", "edge")
    assert found["cloud"]["up"] is True
    assert found["rules"]["problems"] == 1
    assert found["sources"]["all"] == 1
    assert (found["journal"], found["closedListeners"]) == (0, [])


async def test_an_outage_is_reported(parts: HubWorld) -> None:
    hub = parts.running_hub()
    hub.cloud.servers[0].failed("no route")
    assert status(hub)["cloud"]["up"] is False
    assert servers(hub) == [{"server": "https://a:6443", "condition": "down", "reason": "no route"}]


async def test_the_reported_pool_is_the_options_or_the_labels(
    parts: HubWorld, cloud: ScriptableCloud
) -> None:
    cloud.store.create(
        node("n1") | {"metadata": {"name": "n1", "labels": {"apps.openyurt.io/nodepool": "p1"}}}
    )
    nodes = ResourceType("", "v1", "nodes")
    await parts.source(nodes)
    assert status(parts.running_hub())["pool"] == "p1"
    assert status(parts.running_hub(pool="p2"))["pool"] == "p2"


async def test_bytes_from_copies_include_components_only(parts: HubWorld) -> None:
    hub = parts.running_hub()
    for component in ("kubelet", "edgehub"):
        totals = hub.records.traffic.began(component, "", is_error=False, is_watch=False).totals
        totals.sent, totals.copied = 1000, 600
    metrics.UPSTREAM_BYTES.labels("down", "https://a:6443").inc(400)
    shown = status(hub)["bytes"]
    assert (shown["sent"], shown["fromCopies"]) == (1000, 600)
    assert shown["linkDownToday"] >= 400


@pytest.mark.parametrize(
    ("listen", "port", "url"),
    [
        ("127.0.0.1", 10261, "http://127.0.0.1:10261"),
        ("0.0.0.0", 80, "http://127.0.0.1:80"),  # noqa: S104 - nothing binds here
        ("::", 80, "http://[::1]:80"),
        ("127.0.0.1", 0, ""),
    ],
)
async def test_the_status_has_the_url_of_the_plain_port(
    parts: HubWorld, listen: str, port: int, url: str
) -> None:
    hub = parts.running_hub()
    hub = replace(hub, settings=replace(hub.settings, listen=listen, port=port))
    assert status(hub)["url"] == url


async def test_components_are_listed_by_their_bytes(parts: HubWorld) -> None:
    hub = parts.running_hub()
    hub.records.traffic.began("kubelet", "pods", is_error=True, is_watch=False).totals.sent += 10
    proxy = hub.records.traffic.began(
        "kube-proxy", "endpointslices.discovery.k8s.io", is_error=False, is_watch=True
    )
    proxy.totals.sent += 500
    first, second = components(hub)
    assert first.items() >= {"component": "kube-proxy", "bytes": 500, "watches": 1, "errors": 0}.items()
    assert first["reads"] == ["endpointslices.discovery.k8s.io"]
    assert first["filters"][0] == "discardcloudservice"
    assert second.items() >= {"component": "kubelet", "requests": 1, "errors": 1}.items()


async def test_a_silent_component_is_listed_while_its_watch_is_open(parts: HubWorld) -> None:
    now = [1.8e9]
    hub = replace(parts.running_hub(), records=Records(ComponentTraffic(lambda: now[0])))
    hub.records.traffic.began("quiet", "", is_error=False, is_watch=True)
    hub.records.traffic.began("gone", "", is_error=False, is_watch=False)
    assert {each["component"] for each in components(hub)} == {"quiet", "gone"}
    now[0] += 61 * 60
    hub.records.traffic.began("kubelet", "", is_error=False, is_watch=False)
    assert {each["component"] for each in components(hub)} == {"quiet", "kubelet"}


async def test_pending_and_dropped_entries_of_the_journal_are_reported(
    parts: HubWorld, tmp_path: Path
) -> None:
    metrics.JOURNAL_DROPPED.labels("event", "no room").inc(3)
    async with Process(tmp_path).running() as offline:
        hub = replace(parts.running_hub(), offline=offline)
        offline.tables.journal.put_event("POST", "/api/v1/namespaces/x/events", "application/json", b"{}")
        found = journal(hub)
    assert (found["waiting"], found["events"], found["statuses"]) == (1, 1, [])
    dropped = {(each["kind"], each["reason"]): each["count"] for each in found["dropped"]}
    assert dropped["event", "no room"] >= 3


async def test_a_hub_without_a_journal_reports_an_empty_one(parts: HubWorld) -> None:
    assert journal(parts.running_hub()).items() >= {"waiting": 0, "events": 0, "statuses": []}.items()
