"""Requests that the hub answers itself when the cloud is gone, with a small cloud that the test can stop."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from addons.link.health import RETRY_REFUSED
from addons.offline.cached_relay import ATTEMPTS
from addons.offline.cached_response import MAX_CACHED
from addons.offline.copies import DiskCopies
from addons.offline.offline_request import OfflineRequest
from addons.requests.answers import Answer, ClientRequest, RelayToCloud
from addons.requests.caller import Caller
from addons.requests.cloud_identity import HUB_IDENTITY
from addons.requests.route_decision import Route, RouteKind
from addons.views.reviews import Reviews
from kube.errors import unauthorized
from kube.http.client import Client, RawResponse, Unreachable
from kube.json_type import Json
from kube.reflector.list_watch import ListWatch
from kube.requests.request_info import ResourceType, parse_request
from kube.wire.encoding import Encoding
from tests.addons.support.copying import copies_in
from tests.addons.support.exchange import Exchange
from tests.addons.support.observed import until
from tests.addons.support.offline_parts import STRATEGIC, FixedClients, QueuedAnswers
from tests.addons.support.offline_world import OfflineWorld, open_world
from tests.addons.support.refusals import refuses
from tests.addons.support.samples import HUB, POD, fill, raw, read_of
from tests.addons.support.samples import node as node_object
from tests.kube.support.answering import AnsweringClient
from tests.support.objects import obj

OBJECT = "/api/v1/namespaces/a/secrets/s"
NODE = "/api/v1/nodes/n1"
TOKEN = "/api/v1/namespaces/a/serviceaccounts/s/token"
ASKS = {"Accept": "application/json", "Accept-Encoding": "gzip", "Content-Type": STRATEGIC}
TYPED = {"Content-Type": "application/json"}
A_TOKEN = raw(
    {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "status": {"token": "t", "expirationTimestamp": "2100-01-01T00:00:00Z"},
    }
)
REPORT = b'{"status":{"phase":"Running"}}'


class FakeCloud(AnsweringClient):
    """Return the responses that a test sets; `None` is a failed connection, "hub" an error of the hub's own."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1")
        self.says: list[tuple[int, bytes] | None] = []
        self.asked = 0
        self.users: dict[str, str] = {}
        """The users of tokens, as the cloud reviews them."""
        self.is_gone = False

    def of(self, authorization: str) -> Client:
        """Return a client that reviews this token, and knows no other permissions than those in its responses."""
        user = self.users.get(authorization, "")
        if self.is_gone:
            return QueuedAnswers(*[Unreachable("gone")] * 2)
        return QueuedAnswers(
            {"status": {"userInfo": {"username": user}}} if user else unauthorized("Unauthorized")
        )

    def relayed(self) -> RawResponse | None:
        """Return the response to a client's request; None if there is none."""
        self.asked += 1
        said = self.says.pop(0)
        headers = CIMultiDictProxy(CIMultiDict({"Content-Type": "text/plain"}))
        return RawResponse(said[0], headers, said[1]) if said is not None else None


class Node(OfflineWorld):
    """The cached relay of a node, and a client of it."""

    def __init__(self, copies: DiskCopies) -> None:
        self.upstream = FakeCloud()
        super().__init__(copies, self.upstream)
        self.is_up = True
        self.cached_relay = self.relay(
            FixedClients(self.upstream, self.upstream), Reviews(self.upstream.of, 3600)
        )

    async def ask(self, target: str = OBJECT, caller: Caller = HUB) -> tuple[int, bytes, str]:
        return await self.send("GET", target, caller=caller)

    async def send(
        self, method: str, target: str, body: bytes = b"", *, was_sent: bool = False, caller: Caller = HUB
    ) -> tuple[int, bytes, str]:
        route = Route(RouteKind.CACHED_RELAY, "test")
        wanted = ClientRequest(parse_request(method, target), "kubelet", caller, route, sent=int(was_sent))
        return await self.send_as(wanted, target, body)

    async def send_as(self, wanted: ClientRequest, target: str, body: bytes = b"") -> tuple[int, bytes, str]:
        exchange, asked = Exchange(), replace(wanted, target=target, headers=CIMultiDict(ASKS), body=body)
        exchange.start(self._answered(asked, exchange))
        status, found = await exchange.status, await exchange.read_body()
        return status, found, exchange.headers.get("x-edgehub-answered", "")

    async def _answered(self, asked: ClientRequest, exchange: Exchange) -> Answer | None:
        """Answer a request like the proxy: relay it to the cloud, or answer from the cache."""
        try:
            return await self.cached_relay.answer(asked, exchange)
        except RelayToCloud:
            answer = self.upstream.relayed()
        if answer is None:
            return await self._answered(replace(asked, sent=asked.sent + 1), exchange)
        request = OfflineRequest.of(asked.info, asked.target, asked.headers, asked.body)
        self.cached_relay.answers.keep_response(asked.caller, request, answer, 0)
        return Answer(answer.body, answer.headers, answer.status)

    def passed(self, method: str, target: str, code: int, body: bytes, **how: Any) -> None:
        """Let the cloud answer a client through the hub."""
        sent, headers = how.get("sent", b""), how.get("headers", {})
        asks = CIMultiDict({**ASKS, "Accept": how.get("accept", ASKS["Accept"])})
        asked = OfflineRequest.of(parse_request(method, target), target, asks, sent)
        answer = RawResponse(code, CIMultiDictProxy(CIMultiDict(headers)), body)
        self.cached_relay.answers.keep_response(how.get("caller", HUB), asked, answer, 0)

    async def lose_cloud(self) -> None:
        await until(lambda: not self.cached_relay.answers._tasks)
        self.upstream.is_gone = True
        self.health.failed("gone")

    def hold_node(self) -> None:
        """Cache a GET of the node."""
        self.passed("GET", NODE, 200, raw({**node_object("n1", 7), "status": {}}), headers=TYPED)


@asynccontextmanager
async def node_in(folder: Path) -> AsyncIterator[Node]:
    async with copies_in(folder) as copies, open_world(Node(copies)) as made:
        yield made


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with node_in(tmp_path) as made:
        yield made


@pytest.mark.parametrize("code", [200, 404, 409, 429, 500, 503])
async def test_the_response_of_the_cloud_is_relayed(node: Node, code: int) -> None:
    node.upstream.says = [(code, b"said")]
    assert await node.ask() == (code, b"said", "")
    assert node.upstream.asked == 1


async def test_views_wait_for_the_version_of_lists_that_the_cloud_gave_clients(node: Node) -> None:
    """The client of such a list must see a status that the hub accepts while a view is still behind the list."""
    source = node.sources.get(HUB_IDENTITY, ListWatch(ResourceType("", "v1", "nodes")))
    head = {"apiVersion": "v1", "kind": "NodeList", "metadata": {"resourceVersion": "20"}}
    for target, code in (("/api/v1/nodes", 403), (NODE, 200), ("/api/v1/nodes?watch=true", 200)):
        node.passed("GET", target, code, raw({**head, "items": []}), headers=TYPED)
    assert source.given_by_others() == 0
    node.passed("GET", "/api/v1/nodes", 200, raw({**head, "items": []}), headers=TYPED)
    assert source.given_by_others() == 20


async def test_an_unanswered_read_is_retried_and_then_answered_from_the_cache(node: Node) -> None:
    node.upstream.says = [(200, b"seen"), *[None] * ATTEMPTS]
    await node.ask()
    assert await node.ask() == (200, b"seen", "")
    assert node.upstream.asked == 1 + ATTEMPTS


async def test_offline_requests_are_answered_from_a_copy_or_503_and_never_sent(node: Node) -> None:
    node.upstream.says = [(200, b"seen")]
    await node.ask()
    node.health.failed("gone")
    assert await node.ask(f"{OBJECT}?resourceVersion=0&timeout=10s") == (200, b"seen", "")
    code, body, _ = await node.ask(OBJECT + "-other")
    assert (code, b"no copy of secrets" in body) == (503, True)
    assert node.upstream.asked == 1


# -- relayed responses ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "target", "code", "headers"),
    [
        ("GET", OBJECT, 404, {}),
        ("GET", OBJECT, 304, {}),
        ("GET", "/api/v1/secrets?limit=5", 200, {}),
        ("GET", "/api/v1/secrets?continue=x", 200, {}),
        ("POST", OBJECT, 200, {}),
        ("GET", OBJECT, 200, {"Content-Length": str(MAX_CACHED + 1)}),
    ],
)
async def test_only_complete_responses_to_reads_are_stored(
    node: Node, method: str, target: str, code: int, headers: dict[str, str]
) -> None:
    node.passed(method, target, code, b"seen", headers=headers)
    node.health.failed("gone")
    assert (await node.ask(target))[0] == (410 if "continue" in target else 503)
    assert (await node.ask(target.partition("?")[0]))[0] == 503


# -- writes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("labelSelector=a+in", 400),
        ("watch=true&labelSelector=a+in", 400),
        ("resourceVersionMatch=Exact", 422),
    ],
)
async def test_a_malformed_read_is_refused_without_the_cloud(node: Node, query: str, code: int) -> None:
    """It was once answered 503, which clients retry for ever; a watch was 500."""
    await node.lose_cloud()
    assert (await node.ask(f"/api/v1/secrets?{query}"))[0] == code


@pytest.mark.parametrize("content_type", ["application/apply-patch+yaml", "application/yaml"])
async def test_a_media_type_that_only_the_cloud_reads_is_503_offline(node: Node, content_type: str) -> None:
    """kube-apiserver accepts both; clients would take a 415 as final."""
    node.hold_node()
    await node.lose_cloud()
    request = OfflineRequest.of(
        parse_request("PATCH", f"{NODE}/status"), f"{NODE}/status", {"Content-Type": content_type}, REPORT
    )
    with refuses(503):
        await node.writes.answer(HUB, HUB_IDENTITY, request)


@pytest.mark.parametrize("was_sent", [True, False])
async def test_an_unanswered_write_is_sent_once_and_journaled(node: Node, was_sent: bool) -> None:
    """The cloud had applied such a write; replaying the node's former status was then an empty patch, so the cloud
    retained the lost one."""
    node.hold_node()
    node.upstream.says = [None]
    code, body, _ = await node.send("PATCH", f"{NODE}/status", REPORT, was_sent=was_sent)
    assert (code, b"Running" in body, node.upstream.asked) == (200, True, 0 if was_sent else 1)
    assert list(node.journal.statuses) == [NODE]
    entry = node.journal.statuses[NODE]
    former = node.journal.put_status(replace(entry, after=entry.before, sent=None))
    assert former.patch["status"], "it is remembered as sent"


async def test_a_read_that_a_server_may_have_received_is_repeated(node: Node) -> None:
    node.upstream.says = [(200, b"said")]
    assert await node.send("GET", OBJECT, was_sent=True) == (200, b"said", "")


async def test_a_cloud_that_refuses_the_nodes_identity_counts_as_unavailable(node: Node) -> None:
    """Every request was once answered 401, also those that the node had copies for."""
    node.hold_node()
    node.health.refuses_node = True
    assert not node.cached_relay.goes_to_cloud(parse_request("GET", NODE), HUB)
    assert node.cached_relay.goes_to_cloud(parse_request("GET", NODE), POD), "it has an identity of its own"
    assert (await node.ask(NODE))[0] == 200
    assert (await node.send("PATCH", f"{NODE}/status", REPORT))[0] == 200
    assert list(node.journal.statuses) == [NODE]
    for method, target in (("GET", OBJECT), ("PATCH", "/api/v1/nodes/other/status")):
        code, body, _ = await node.send(method, target, REPORT)
        assert (code, json.loads(body)["details"]) == (503, {"retryAfterSeconds": RETRY_REFUSED})
        assert b"identity" in body
    assert node.upstream.asked == 0


async def test_a_write_is_held_back_until_the_pending_one_of_its_object_is_sent(node: Node) -> None:
    node.hold_node()
    info = parse_request("PATCH", f"{NODE}/status")
    assert node.cached_relay.goes_to_cloud(info, HUB)
    node.health.failed("gone")
    assert not node.cached_relay.goes_to_cloud(info, HUB)
    assert (await node.send("PATCH", f"{NODE}/status", REPORT))[0] == 200
    while not node.health.succeeded():
        pass
    assert not node.cached_relay.goes_to_cloud(info, HUB), "its object is owed"
    assert node.cached_relay.goes_to_cloud(parse_request("GET", NODE), HUB)
    assert node.cached_relay.goes_to_cloud(parse_request("PATCH", "/api/v1/nodes/other/status"), HUB)
    node.upstream.says = [(200, b"later")]
    assert (await node.send("PATCH", f"{NODE}/status", REPORT))[1] == b"later"
    assert node.cloud.lines == [("PATCH", f"{NODE}/status")]
    assert node.cached_relay.goes_to_cloud(info, HUB)


async def test_a_write_is_merged_into_the_pending_one_that_the_cloud_could_not_accept(node: Node) -> None:
    node.hold_node()
    node.health.failed("gone")
    await node.send("PATCH", f"{NODE}/status", REPORT)
    while not node.health.succeeded():
        pass
    node.cloud.usual = Unreachable("gone again")
    assert (await node.send("PATCH", f"{NODE}/status", b'{"status":{"phase":"Later"}}'))[0] == 200
    assert node.upstream.asked == 0, "it did not overtake"
    assert node.journal.statuses[NODE].after["status"]["phase"] == "Later"


# -- a response that is newer than the copy ------------------------------------------------------------------------


def pod_at(version: int) -> Json:
    return obj("Pod", "p", "a", version)


@pytest.mark.parametrize(
    ("copy", "at", "seen", "shown"),
    [
        ([], 5, 6, 6),
        ([pod_at(4)], 5, 6, 6),
        ([pod_at(7)], 7, 6, 7),
        ([pod_at(6)], 9, 6, 6),
        ([], 9, 6, 404),
        ([], 5, 0, 404),
        ([pod_at(4)], 5, 0, 4),
    ],
)
async def test_no_client_sees_an_object_older_than_it_has_seen(
    node: Node, copy: list[Json], at: int, seen: int, shown: int
) -> None:
    """A client once got 404 for an object that it had just read, as the object's event had not reached the copy."""
    pod_path = "/api/v1/namespaces/a/pods/p"
    pods = ResourceType("", "v1", "pods")
    store = node.sources.get(HUB_IDENTITY, ListWatch(pods, encoding=Encoding.JSON)).store
    fill(store, copy, at, kind="Pod")
    if seen:
        node.passed("GET", pod_path, 200, raw(pod_at(seen)), headers=TYPED)
    node.health.failed("gone")
    info = parse_request("GET", pod_path)
    route = Route(RouteKind.CACHED_RELAY, "test", read=read_of(pod_path))
    code, body, _ = await node.send_as(ClientRequest(info, "kubelet", HUB, route), pod_path)
    found = 404 if code == 404 else int(json.loads(body)["metadata"]["resourceVersion"])
    assert found == shown
