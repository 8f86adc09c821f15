"""Explanations of why a component sees an object as it does, from the live parts."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from addons.filters.chain import FILTERS
from addons.filters.verdict import Outcome
from addons.link.health import ServerHealth
from addons.link.servers import Server
from addons.pool.leader_selector import LeaderSelector
from addons.pool.peer_reader import PeerReader, SharedSources
from addons.pool.peers.own_peer import OwnPeer
from addons.pool.peers.peer import PeerAnswer, PeerHub, PeerRole
from addons.pool.peers.peer_probes import Peers
from addons.requests.cloud_identity import CloudIdentity
from addons.ui import explain as module
from addons.ui.dry_run import dry_run
from addons.ui.explain import ExplainRequest, Explanation, explain, explain_resource, nearest, plural_of
from addons.ui.reports.text import explain_text
from addons.ui.running_hub import RunningHub
from kube.reflector.list_watch import ListWatch
from kube.reflector.state import State
from kube.requests.request_info import ResourceType
from kube.wire.encoding import Encoding
from tests.addons.support.hub_world import SERVICES, SLICES, HubWorld
from tests.addons.support.samples import cloud_service, endpoint_slice, secret, service
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.access import User
from tests.cloud.scriptable.faults import Silence
from tests.cloud.scriptable.request_log import matching

TOPOLOGY = {"openyurt.io/topologyKeys": "kubernetes.io/hostname"}


def explained(
    parts: HubWorld, component: str = "reader", resource: str = "endpointslices", **asked: str
) -> Explanation:
    return explain(parts.running_hub(rules=None), ExplainRequest(component, resource, **asked))


def text_of(explanation: Explanation) -> str:
    return explain_text(asdict(explanation))


@pytest.fixture
async def sliced(parts: HubWorld, cloud: ScriptableCloud) -> HubWorld:
    """A hub with a slice of a Service whose topology is its node, and with the Service."""
    cloud.store.create(service("web", annotations=TOPOLOGY))
    cloud.store.create(endpoint_slice("web-1", ["n1", "n2"]))
    await parts.source(SLICES)
    parts.inputs.ask().service("default", "web")
    await parts.inputs.learned.wait()
    return parts


async def test_explain_has_the_route_its_reason_the_rules_and_the_filters(sliced: HubWorld) -> None:
    found = explained(sliced)
    assert (found.route, found.reason) == ("view", "filtered by servicetopology")
    assert found.filters == ["servicetopology"]
    assert any("filter_servicetopology" in rule for rule in found.rules)
    assert text_of(found).splitlines()[0] == "reader list /apis/discovery.k8s.io/v1/endpointslices"
    assert "route: view (filtered by servicetopology)" in text_of(found)
    assert found.notes == []


async def test_explain_has_each_filters_decision_about_an_object(sliced: HubWorld) -> None:
    found = explained(sliced, namespace="default", name="web-1")
    assert (found.outcome, found.problem) == ("changed", "")
    decisions = {note.subject: note.outcome for note in found.notes}
    assert decisions == {"10.0.0.1": "kept", "10.0.0.2": "dropped", "object": "changed"}
    assert "  servicetopology: 10.0.0.2 dropped: " in text_of(found)
    assert "object: changed" in text_of(found)


def peer(name: str, *, is_relay: bool = False, age: float = 0.0) -> PeerHub:
    made = PeerHub(ServerHealth(Server("https", "10.0.0.2", 10269, name)))
    made.role, made.said = PeerRole.RELAY if is_relay else PeerRole.LEADER, PeerAnswer(age=age)
    return made


@pytest.mark.parametrize(
    ("server", "state", "origin"),
    [
        (None, State.WATCHING, "the cloud"),
        (peer("n2"), State.WATCHING, "leader n2"),
        (peer("n2", age=7.0), State.WATCHING, "leader n2, which has had no cloud for 7 s"),
        (peer("relay r:1", is_relay=True), State.WATCHING, "relay r:1"),
        (peer("n2"), State.WAITING, "the hub's own copy: no server is watched now"),
    ],
)
async def test_explain_names_the_server_an_object_came_from(
    sliced: HubWorld, server: PeerHub | None, state: State, origin: str
) -> None:
    [source] = [each for each in sliced.sources if each.list_watch.type == SLICES]
    reader = PeerReader(
        SLICES,
        source.client,
        LeaderSelector(OwnPeer("n1", 1), Peers(source.client, lambda _: 0), SharedSources(()), lambda: True),
        lambda: 0,
    )
    reader.peer = server
    source.reflector.upstream, source.reflector.state = reader, state
    found = explained(sliced, namespace="default", name="web-1")
    assert found.origin == origin
    assert f"from: {origin}" in text_of(found).splitlines()
    assert not explained(sliced).origin


async def test_explain_shows_a_dropped_object(parts: HubWorld, cloud: ScriptableCloud) -> None:
    parts.set_rules({"filter_discardcloudservice": "chosen/services"})
    cloud.store.create(cloud_service("lb"))
    await parts.source(SERVICES)
    found = explained(parts, "chosen", "services", namespace="default", name="lb")
    assert (found.outcome, {note.filter for note in found.notes}) == ("dropped", {"discardcloudservice"})
    assert (found.notes[-1].subject, found.notes[-1].outcome) == ("object", "dropped")


async def test_explain_accepts_a_user_agent_as_the_component(sliced: HubWorld) -> None:
    assert explained(sliced, "Reader/v1.2 (linux)").component == "reader"
    assert text_of(explained(sliced, "../x")).startswith("unknown ")


async def test_explain_of_an_object_without_a_copy(sliced: HubWorld) -> None:
    assert "no copy of this object" in explained(sliced, namespace="default", name="none").problem
    assert (
        "no copy of this object" in explained(sliced, resource="pods", namespace="default", name="x").problem
    )
    assert "note: " in text_of(explained(sliced, namespace="default", name="none"))


async def test_an_object_is_found_without_its_namespace_and_by_a_short_name(
    parts: HubWorld, cloud: ScriptableCloud
) -> None:
    for name, namespace in (("web", "default"), ("web", "shop"), ("api", "shop")):
        made = service(name)
        made["metadata"]["namespace"] = namespace
        cloud.store.create(made)
    await parts.source(SERVICES)
    found = explained(parts, resource="svc", name="api", verb="get")
    assert (found.path, found.outcome) == ("/api/v1/namespaces/shop/services/api", "kept")
    both = explained(parts, resource="svc", name="web")
    assert (both.outcome, both.hints[-1]) == ("kept", "this is the one in default; there are others in shop")


async def test_explain_names_an_unknown_input(parts: HubWorld, cloud: ScriptableCloud) -> None:
    cloud.faults.add(Silence(), times=None, when=matching(resource="services"))
    cloud.store.create(endpoint_slice("web-1", ["n1"]))
    await parts.source(SLICES)
    assert "not known yet" in explained(parts, namespace="default", name="web-1").problem
    cloud.faults.clear()


async def test_a_resource_with_its_group_is_explained_before_its_first_request(parts: HubWorld) -> None:
    """The rules are known without a copy, so the route must equal that of the first request."""
    found = explained(parts, resource="endpointslices.discovery.k8s.io")
    assert found.filters == ["servicetopology"]


@pytest.mark.parametrize("resource", ["", "a b", "..", "%", "x\x00", "é"])
async def test_explain_of_an_invalid_resource_has_a_problem(parts: HubWorld, resource: str) -> None:
    found = explained(parts, resource=resource, name="x")
    assert found.problem
    assert text_of(found).endswith("\n")


async def test_the_explained_verdict_equals_that_of_the_filter_chain(sliced: HubWorld) -> None:
    """The filters explained one by one must give the verdict of the complete chain."""
    (source,) = [each for each in sliced.sources if each.list_watch.type == SLICES]
    (item,) = list(source.store)
    topology = tuple(each for each in FILTERS if each.name == "servicetopology")
    explained, quick = (dry_run(item, topology, sliced.inputs, explains=each) for each in (True, False))
    assert (explained.outcome, explained.is_pending) == (Outcome.CHANGED, False)
    assert explained.notes[-1].subject == "object"
    assert (quick.outcome, quick.raw) == (explained.outcome, explained.raw)


@pytest.mark.parametrize(
    ("component", "resource", "hints"),
    [
        ("kube-proxy", "endpointslices", []),
        ("kube-prxy", "endpointslices", ["component 'kube-prxy', and it has no view: is it 'kube-proxy'?"]),
        (
            "kube-proxy",
            "endpointslics",
            ["the hub reads no resource 'endpointslics': is it 'endpointslices'?"],
        ),
        ("kube-proxy", "endpointslice", []),
        ("kube-proxy", "svc", []),
        ("kube-proxy", "Services", ["the hub reads no resource 'Services': is it 'services'?"]),
        ("qqqq", "zzzz", ["component 'qqqq', and it has no view", "the hub reads no resource 'zzzz'"]),
    ],
)
async def test_an_unknown_name_is_explained_with_a_suggestion(
    parts: HubWorld, component: str, resource: str, hints: list[str]
) -> None:
    found = explained(parts, component, resource)
    assert len(found.hints) == len(hints)
    for said, expected in zip(found.hints, hints, strict=True):
        assert said.endswith(expected)
        assert f"note: {said}\n" in text_of(found)


async def test_an_object_of_another_identity_is_explained_like_a_missing_one(
    parts: HubWorld, cloud: ScriptableCloud
) -> None:
    """Only the caller may know whether its Secret exists; the admin port requires no credentials."""
    cloud.access.tokens["pod-token"] = User("pod")
    cloud.store.create(secret())
    secrets = ListWatch(ResourceType("", "v1", "secrets"), encoding=Encoding.JSON)
    source = parts.sources.get(CloudIdentity("pod", "Bearer pod-token"), secrets)
    await source.ready(2)
    assert len(source.store) == 1
    existing, missing = (
        explained(parts, resource="secrets", namespace="default", name=name) for name in ("s", "none")
    )
    assert "no copy of this object" in existing.problem
    assert text_of(existing) == text_of(missing)


async def test_a_resource_is_explained_with_its_hidden_objects_and_reasons(hub: RunningHub) -> None:
    found = await explain_resource(hub, ExplainRequest("chosen", "services"))
    assert found.counts == {"kept": 1, "changed": 0, "hidden": 1, "unknown": 0}
    (hidden,) = found.objects
    assert (hidden["name"], hidden["outcome"]) == ("lb", "hidden")
    assert "LoadBalancer" in hidden["reasons"][0].reason
    head = text_of(explain(hub, ExplainRequest("chosen", "services")))
    assert text_of(found).startswith(f"{head}1 kept, 0 changed, 1 hidden, 0 unknown\ndefault/lb: hidden\n  ")


async def test_explain_is_limited_to_its_namespace(hub: RunningHub) -> None:
    found = await explain_resource(hub, ExplainRequest("chosen", "services", "elsewhere"))
    assert sum(found.counts.values()) == 0


async def test_explained_objects_are_bounded_and_all_are_counted(
    hub: RunningHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_OBJECTS", 0)
    found = await explain_resource(hub, ExplainRequest("chosen", "services"))
    assert (found.counts["hidden"], found.objects) == (1, [])
    assert text_of(found).endswith("and 1 more: name a namespace\n")


async def test_explain_of_a_resource_without_a_copy_has_a_note(hub: RunningHub) -> None:
    found = await explain_resource(hub, ExplainRequest("chosen", "pods"))
    assert "note: the hub has no copy of this resource: no client asked for it yet\n0 kept" in text_of(found)


@pytest.mark.parametrize(
    ("typed", "plural"),
    [
        ("svc", "services"),
        ("service", "services"),
        ("services", "services"),
        ("ep", "endpoints"),
        ("endpoints", "endpoints"),
        ("endpointslice.discovery.k8s.io", "endpointslices.discovery.k8s.io"),
        ("networkpolicy", "networkpolicies"),
        ("services.v1", "services"),
        ("svc.v1.", "services"),
        ("deploy.v1.apps", "deployments.apps"),
        ("widgets.v1beta1.example.com", "widgets.example.com"),
        ("widgets", "widgets"),
        ("", ""),
    ],
)
def test_short_and_singular_resource_names_are_accepted(typed: str, plural: str) -> None:
    assert plural_of(typed) == plural


def test_the_nearest_name_is_suggested() -> None:
    assert nearest("Servics", {"services", "nodes"}) == ": is it 'services'?"
    assert nearest("zzzz", {"services", "nodes"}) == ""
