"""A leader's responses at its peer port: its own copy, unfiltered, at the cloud's versions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from addons.pool.peer_serving import PeerServing
from addons.requests.answers import Answer
from addons.requests.caller import Caller, CredentialSource, Listener
from addons.requests.cloud_identity import HUB_IDENTITY
from addons.requests.request_context import RequestContext
from addons.requests.route_decision import RouteKind, decide
from addons.telemetry import metrics
from addons.views import serving
from kube.errors import StatusError
from kube.reflector.list_watch import ListWatch
from kube.requests.request_info import ResourceType, parse_request
from kube.wire.encoding import Encoding
from tests.addons.support.exchange import Exchange
from tests.addons.support.hub_world import HUB_TOKEN, HubWorld, Watching
from tests.addons.support.observed import until
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.access import User
from tests.cloud.scriptable.faults import Refuse
from tests.cloud.scriptable.request_log import matching

SERVICES = "/api/v1/services"
SERVICES_SOURCE = ListWatch(ResourceType("", "v1", "services"), encoding=Encoding.JSON)
PATIENCE = 20.0
"""Seconds until the first copy, which takes milliseconds."""


class Leader:
    """The parts of a hub and its peer port, without admission."""

    def __init__(self, parts: HubWorld) -> None:
        self.parts = parts
        self.leads = True
        self.shared = {"services"}
        self.discovered: dict[str, Answer] = {}
        self.serving = PeerServing(
            parts.sources,
            parts.serving,
            lambda: self.leads,
            lambda type_: type_.resource in self.shared,
            discovery=self._discovery,
        )

    async def _discovery(self, path: str) -> Answer | None:
        return self.discovered.get(path)

    @asynccontextmanager
    async def open(
        self,
        target: str,
        node: str = "n2",
        method: str = "GET",
        *,
        reads_differences: bool = False,
        accept: str = "application/json",
    ) -> AsyncIterator[Exchange]:
        info = parse_request(method, target)
        nobody = Caller(CredentialSource.NONE)
        route = decide(info, "x", nobody, Listener.PEER, accept, self.parts.rules)
        assert route.kind is RouteKind.PEER
        context = RequestContext(info, "x", Listener.PEER, accept, reads_differences)
        context.caller, context.route, context.peer = nobody, route, node
        async with self.parts.open(context, answerer=self.serving) as response:
            yield response

    async def ask(self, target: str, **how: Any) -> tuple[int, dict[str, Any]]:
        async with self.open(target, **how) as response:
            return await response.status, json.loads(await response.read_body())


def create_service(cloud: ScriptableCloud, name: str) -> None:
    """Create a Service that a filter could hide."""
    metadata = {"name": name, "namespace": "default"}
    spec = {"type": "LoadBalancer", "ports": [{"port": 80}]}
    cloud.store.create({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})


@pytest.fixture
async def leader(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Leader]:
    monkeypatch.setattr(serving, "FUTURE_WAIT", 0.05)
    monkeypatch.setattr("addons.pool.peer_serving.FUTURE_WAIT", 0.5)
    async with ScriptableCloud() as cloud, HubWorld(cloud) as parts:
        cloud.access.tokens[HUB_TOKEN] = User("hub")
        for name in ("one", "two"):
            create_service(cloud, name)
        await parts.sources.get(HUB_IDENTITY, SERVICES_SOURCE).ready(PATIENCE)
        yield Leader(parts)


async def test_a_follower_lists_and_watches_the_leaders_copy_unfiltered(leader: Leader) -> None:
    # kube-proxy would not see Services of type LoadBalancer; peers get the cloud's objects.
    leader.parts.set_rules({"filter_discardcloudservice": "*/services"})
    code, found = await leader.ask(f"{SERVICES}?resourceVersion=0")
    assert code == 200, found
    assert [each["metadata"]["name"] for each in found["items"]] == ["one", "two"]
    version = found["metadata"]["resourceVersion"]
    async with leader.open(f"{SERVICES}?watch=true&resourceVersion={version}") as response:
        watching = Watching(response)
        assert leader.serving.watchers() == {"n2": 1}
        labels = {"resource": "services"}
        assert metrics.REGISTRY.get_sample_value("edgehub_peer_watchers", labels) == 1
        create_service(leader.parts.cloud, "three")
        assert await watching.event() == ("ADDED", "three")
        leader.serving.keep_only(lambda node, _: node != "n2")
        assert await watching.until_end() == []
    assert not leader.serving.watchers()


async def test_a_plain_watch_ends_soon_and_a_watch_of_differences_continues(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A YurtHub looks for the current leader only when it opens a watch."""
    monkeypatch.setattr("addons.pool.peer_serving.PLAIN_WATCH", 1)
    version = (await leader.ask(f"{SERVICES}?resourceVersion=0"))[1]["metadata"]["resourceVersion"]
    target = f"{SERVICES}?watch=true&resourceVersion={version}&timeoutSeconds=427"
    async with (
        asyncio.timeout(PATIENCE),
        leader.open(target, reads_differences=True) as of_hub,
        leader.open(target) as plain,
    ):
        assert await plain.read_body() == b""
        create_service(leader.parts.cloud, "three")
        assert await of_hub.next_piece()


async def test_a_watch_from_a_list_version_newer_than_any_event_is_accepted(
    leader: Leader,
) -> None:
    """A list without a version has the cloud's newest one, which may belong to a change of another resource."""
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "default"}}
    leader.parts.cloud.store.create(config_map)
    code, found = await leader.ask(SERVICES)
    version = found["metadata"]["resourceVersion"]
    assert code == 200
    assert int(version) > leader.parts.sources.get(HUB_IDENTITY, SERVICES_SOURCE).store.version
    async with leader.open(f"{SERVICES}?watch=true&resourceVersion={version}") as response:
        assert await response.status == 200
        watching = Watching(response)
        create_service(leader.parts.cloud, "three")
        assert await watching.event() == ("ADDED", "three")
        leader.serving.keep_only(lambda node, _: node != "n2")
        assert await watching.until_end() == []


async def test_nodes_are_served_only_as_metadata(leader: Leader) -> None:
    leader.parts.cloud.store.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n7"}})
    leader.parts.set_rules({"pool_resources": "/v1/nodes"})
    nodes = "/api/v1/nodes?resourceVersion=0"
    names = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    assert (await leader.ask(nodes, accept=names))[0] == 403
    leader.shared.add("nodes")
    code, found = await leader.ask(nodes, accept=names)
    assert (code, found["kind"]) == (200, "PartialObjectMetadataList")
    assert [each["metadata"]["name"] for each in found["items"]] == ["n7"]
    with pytest.raises(StatusError, match="the metadata of nodes"):
        await leader.ask(nodes)


async def test_a_watchlist_begins_with_the_initial_events(leader: Leader) -> None:
    query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    async with leader.open(f"{SERVICES}?{query}") as response:
        watching = Watching(response)
        assert [await watching.event() for _ in range(2)] == [("ADDED", "one"), ("ADDED", "two")]
        assert (await watching.next()).type == "BOOKMARK"
        leader.serving.keep_only(lambda _, type_: type_ != ResourceType("", "v1", "services"))
        await watching.until_end()


async def test_a_node_that_leaves_the_pool_while_its_request_waits_gets_no_watch(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node was admitted, then the leader waited for the requested version."""
    monkeypatch.setattr("addons.pool.peer_serving.FUTURE_WAIT", PATIENCE)
    version = leader.parts.cloud.store.version + 1

    async def ask() -> Watching:
        async with leader.open(f"{SERVICES}?watch=true&resourceVersion={version}") as response:
            watching = Watching(response)
            assert await watching.until_end() == []
            return watching

    asked = asyncio.create_task(ask())
    source = leader.parts.sources.get(HUB_IDENTITY, SERVICES_SOURCE)
    await until(lambda: source.users, PATIENCE)
    leader.serving.keep_only(lambda node, _: node != "n2")
    create_service(leader.parts.cloud, "three")
    async with asyncio.timeout(PATIENCE):
        await asked
    await until(lambda: not leader.serving.watchers(), PATIENCE)


async def test_requests_of_a_node_are_bounded(leader: Leader, monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader sends each event to each watch. Each node has its own bound."""
    monkeypatch.setattr("addons.pool.peer_serving.MAX_REQUESTS_PER_NODE", 2)
    before = refused("too many")
    watch = f"{SERVICES}?watch=true&resourceVersion=0"
    async with leader.open(watch) as one, leader.open(watch) as two:
        assert (await one.status, await two.status) == (200, 200)
        assert (await leader.ask(SERVICES))[0] == 429
        assert refused("too many") == before + 1
        async with leader.open(SERVICES, node="n3") as other:
            assert await other.status == 200
        leader.serving.keep_only(lambda node, _: node != "n2")
        for each in (one, two):
            await Watching(each).until_end()
    await until(lambda: not leader.serving.watchers(), PATIENCE)
    leader.serving.keep_only(lambda _node, _type: True)
    assert (await leader.ask(SERVICES))[0] == 200


@pytest.mark.parametrize("query", ["resourceVersion=999999", "watch=true&resourceVersion=999999"])
async def test_a_leader_behind_the_requested_version_answers_504(leader: Leader, query: str) -> None:
    code, found = await leader.ask(f"{SERVICES}?{query}")
    assert code == 504
    assert "Too large resource version" in found["message"]


def refused(reason: str) -> float:
    return metrics.REGISTRY.get_sample_value("edgehub_peer_refused_total", {"reason": reason}) or 0.0


@pytest.mark.parametrize(
    ("target", "code", "reason"),
    [
        ("/apis/apps", 404, "path"),
        (f"{SERVICES}?labelSelector=a", 403, "selection"),
        ("/api/v1/namespaces/default/services/one", 403, "verb"),
        ("/api/v1/secrets", 403, "resource"),
        ("/api/v1/endpoints", 403, "resource"),
    ],
)
async def test_refusals_are_counted(leader: Leader, target: str, code: int, reason: str) -> None:
    before = refused(reason)
    assert (await leader.ask(target))[0] == code
    assert refused(reason) == before + 1


async def test_a_probe_is_not_counted_as_a_refusal(leader: Leader) -> None:
    before = refused("path")
    assert (await leader.ask("/livez"))[0] == 404
    assert refused("path") == before


async def test_a_hub_that_does_not_lead_serves_nothing(leader: Leader) -> None:
    leader.leads = False
    assert (await leader.ask(SERVICES))[0] == 503


async def test_discovery_is_served_unchanged_and_is_missing_until_cached(leader: Leader) -> None:
    before = refused("path")
    assert (await leader.ask("/version"))[0] == 404
    leader.discovered["/version"] = Answer(b'{"major": "1"}', {"Content-Type": "application/json"})
    assert await leader.ask("/version") == (200, {"major": "1"})
    leader.leads = False
    assert (await leader.ask("/version"))[0] == 503
    assert refused("path") == before


async def test_the_clouds_refusal_of_a_leader_is_503_for_a_follower(leader: Leader) -> None:
    leader.shared.add("endpoints")
    leader.parts.cloud.faults.add(Refuse(403), times=None, when=matching(resource="endpoints"))
    assert (await leader.ask("/api/v1/endpoints?resourceVersion=0"))[0] == 503
