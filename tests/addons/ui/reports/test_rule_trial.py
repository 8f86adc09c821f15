"""The report `rules try`: which texts are parsed as rules, and what an edit would change, without applying it."""

from __future__ import annotations

from typing import Any

import pytest

from addons.ui import dry_run
from addons.ui.reports import rule_trial
from addons.ui.reports.rule_trial import MAX_REASONS, MAX_TEXT, read_rules, try_rules
from addons.ui.reports.text import trial_text
from addons.ui.running_hub import RunningHub
from tests.addons.support.hub_world import SLICES as SLICES_TYPE
from tests.addons.support.hub_world import HubWorld
from tests.addons.support.samples import SERVICES, cloud_service, endpoint_slice, service
from tests.cloud.scriptable import ScriptableCloud

IN_FORCE = {"cache_agents": "cached, other", "discardcloudservice": "filtered"}
OWN = "kube-system", "yurt-hub-cfg"
ON_NODE = {"openyurt.io/topologyKeys": "kubernetes.io/hostname"}


@pytest.fixture
async def hub(parts: HubWorld, cloud: ScriptableCloud) -> RunningHub:
    """A hub with three components that have listed Services: two get both, one does not get the load balancer."""
    cloud.store.create(service("web", annotations=ON_NODE))
    cloud.store.create(cloud_service("lb"))
    cloud.store.create(endpoint_slice("web-1", ["n1", "n2"]))
    made = parts.running_hub(IN_FORCE)
    for component in ("cached", "other", "filtered"):
        await parts.ask(f"{SERVICES}?resourceVersion=0", component)
    return made


def row(trial: dict[str, Any], component: str) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in trial["components"] if each["component"] == component)
    return found


async def test_a_rule_trial_reports_lost_objects_with_reasons(hub: RunningHub) -> None:
    trial = await try_rules(hub, {**IN_FORCE, "filter_discardcloudservice": "cached/services#list"})
    found = row(trial, "cached")
    assert (found["verbs"], found["before"], found["after"]) == (["list"], [], ["discardcloudservice"])
    assert [each["name"] for each in found["lost"]["names"]] == ["default/lb"]
    assert "LoadBalancer" in found["lost"]["names"][0]["reasons"][0]
    assert trial["lost"] == {"objects": 1, "endpoints": 0}
    assert any(trial["lost"].values())
    assert [each["component"] for each in trial["components"]] == ["cached"], "others see what they saw"


async def test_a_rule_trial_reports_gained_objects(hub: RunningHub) -> None:
    trial = await try_rules(hub, {"cache_agents": "cached, other"})
    found = row(trial, "filtered")
    assert (found["gained"], found["lost"]["count"]) == ({"count": 1, "names": ["default/lb"]}, 0)
    assert not any(trial["lost"].values())


async def test_a_rule_trial_applies_nothing(hub: RunningHub, parts: HubWorld) -> None:
    before = [
        (key, each.view, each.filters) for source in parts.sources for key, each in source.views.items()
    ]
    await try_rules(hub, {"discardcloudservice": "*"})
    assert before == [
        (key, each.view, each.filters) for source in parts.sources for key, each in source.views.items()
    ]
    assert await parts.names(f"{SERVICES}?resourceVersion=0", "cached") == ["lb", "web"]


async def test_lost_endpoints_of_a_slice_are_reported(hub: RunningHub, parts: HubWorld) -> None:
    await parts.source(SLICES_TYPE)
    hub.records.traffic.began("cached", "endpointslices.discovery.k8s.io", is_error=False, is_watch=False)
    await parts.inputs_known()
    trial = await try_rules(hub, {**IN_FORCE, "servicetopology": "cached"})
    found = row(trial, "cached")
    assert found["unknown"] == 0
    assert found["endpoints"] == {"before": 2, "after": 1, "difference": -1}
    assert found["changed"]["names"][0]["endpoints"] == -1
    assert trial["lost"] == {"objects": 0, "endpoints": 1}


async def test_the_reported_reasons_are_bounded(
    hub: RunningHub, parts: HubWorld, cloud: ScriptableCloud
) -> None:
    """Each lost endpoint has its own reason."""
    nodes = ["n1", *(f"far-{number}" for number in range(MAX_REASONS + 3))]
    cloud.store.create(endpoint_slice("web-2", nodes))
    await parts.source(SLICES_TYPE)
    hub.records.traffic.began("cached", "endpointslices.discovery.k8s.io", is_error=False, is_watch=False)
    await parts.inputs_known()
    found = row(await try_rules(hub, {**IN_FORCE, "servicetopology": "cached"}), "cached")
    changed = {each["name"]: each for each in found["changed"]["names"]}
    assert changed["default/web-2"]["endpoints"] == 1 - len(nodes)
    assert len(changed["default/web-2"]["reasons"]) == MAX_REASONS


async def test_a_rule_trial_reports_problems_unknown_components_and_cache_changes(hub: RunningHub) -> None:
    trial = await try_rules(hub, {"masterservice": "newcomer, a:b", "cache_agents": "other, -kubelet"})
    assert [each["text"] for each in trial["problems"]] == ["a:b"]
    assert {"component": "newcomer", "before": [], "after": ["masterservice"]} in trial["unseen"]
    assert trial["cached"]["lost"] == ["cached", "kubelet"]


async def test_names_are_bounded_and_all_are_counted(
    hub: RunningHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule_trial, "MAX_NAMED", 0)
    found = row(await try_rules(hub, {**IN_FORCE, "filter_discardcloudservice": "cached"}), "cached")
    assert found["lost"] == {"count": 1, "names": []}


async def test_a_rule_trial_beyond_its_deadline_is_incomplete(
    hub: RunningHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dry_run, "MAX_SECONDS", -1.0)
    trial = await try_rules(hub, {**IN_FORCE, "filter_discardcloudservice": "cached"})
    assert trial["complete"] is False


async def test_a_rule_trial_names_resources_without_a_copy(hub: RunningHub) -> None:
    hub.records.traffic.began("reader", "endpoints", is_error=False, is_watch=False)
    trial = await try_rules(hub, {**IN_FORCE, "endpoints": "reader"})
    found = row(trial, "reader")
    assert (found["copy"], found["objects"]) == (False, 0)
    assert trial["untried"] == ["reader endpoints"], "no loss was seen, because nothing was looked at"
    assert "not tried: the hub has no copy of what they read: reader endpoints" in trial_text(trial)


async def test_a_component_that_has_not_read_the_filtered_resource_is_named(hub: RunningHub) -> None:
    """The component has listed only Services."""
    hub.records.traffic.began("reader", "services", is_error=False, is_watch=False)
    trial = await try_rules(hub, {**IN_FORCE, "endpoints": "reader"})
    assert {"component": "reader", "before": [], "after": ["endpoints"]} in trial["unseen"]


async def test_a_rule_trial_without_clients_evaluates_nothing(parts: HubWorld) -> None:
    hub = parts.running_hub(IN_FORCE)
    trial = await try_rules(hub, {**IN_FORCE, "servicetopology": "envoy"})
    assert (trial["components"], trial["untried"]) == ([], ["envoy"])
    assert (await try_rules(hub, IN_FORCE))["untried"] == []


MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: yurt-hub-cfg}\n"


@pytest.mark.parametrize(
    ("text", "data"),
    [
        (f"{MAP}data: {{endpoints: x}}\n", {"endpoints": "x"}),
        (f"kind: Service\n---\n{MAP}data: {{endpoints: x}}\n", {"endpoints": "x"}),
        ('{"kind": "ConfigMap", "data": {"endpoints": "x"}}', {"endpoints": "x"}),
        ("endpoints: x\ncache_agents: '*'\n", {"endpoints": "x", "cache_agents": "*"}),
        ("data:\n  endpoints: x\n", {"endpoints": "x"}),
        ("data: x\n", {"data": "x"}),
        ("endpoints: 2024-99-99\n", {"endpoints": "2024-99-99"}),
        (MAP, None),
        ("", None),
        ("# nothing\n", None),
    ],
)
def test_a_rule_trial_accepts_a_configmap_or_its_data(text: str, data: dict[str, str] | None) -> None:
    assert read_rules(text.encode(), OWN) == data


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"a: [", "not valid YAML"),
        (b"\xff\xfe\xff", "no"),
        (b"kind: Service\n", "no ConfigMap"),
        (b"- x\n", "no ConfigMap"),
        ((MAP + "---\n" + MAP).encode(), "more than one"),
        ((MAP + "data: [x]\n").encode(), "must be a mapping"),
        (b"endpoints: x\nendpoints: y\n", "endpoints appears twice"),
        (
            b"kind: ConfigMap\nmetadata: {name: other}\n",
            "ConfigMap kube-system/other, and the rules are kube-sys",
        ),
        (b"kind: ConfigMap\nmetadata: {namespace: default}\n", "default/yurt-hub-cfg"),
        (b"endpoints: 7\n", "data.endpoints must be a string, not 7: put it in quotation marks"),
        (b"a: !!bool x\n", "data.a must be a string, not x: put it in quotation marks"),
        (b"a: 1" + b":1" * 20_000, "data.a must be a string, not 1:1:1"),
        (b"a: &x [1]\nb: *x\n", "has a YAML alias"),
        (b"[" * 200_000, "nested deeper"),
        (b"{a: " * 200_000, "nested deeper"),
        (b"- " * 200_000, "nested deeper"),
        (b"- a\n" * 60_000, "nodes"),
        (b"#" * (MAX_TEXT + 1), "longer than"),
    ],
)
def test_malformed_rules_are_refused(text: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_rules(text, OWN)
