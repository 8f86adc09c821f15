"""Requests that the hub can answer: to the cloud with a failover, else by itself; the hub copies answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

import pytest
from mitmproxy import http

from addons.offline.cached_relay import CachedRelay
from addons.offline.offline_request import OfflineRequest
from addons.proxy.listener_mode import DEAD_ADDRESS
from addons.requests.caller import Caller
from addons.requests.hidden_credentials import lend, with_credentials
from addons.requests.offline_policy import OfflinePolicy
from addons.requests.route_decision import RouteKind
from kube.http.client import RawResponse
from kube.requests.request_info import RequestInfo
from tests.addons.support.routed import ANSWERERS, Routed, decided, route_of
from tests.addons.support.samples import HUB, NOBODY, POD, raw, service

NODE = "/api/v1/nodes/n1"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1"


class Standing:
    """What the router knows of the node's own answers."""

    def __init__(self) -> None:
        self.is_up = True
        self.owed = ""
        """The path of an object that the cloud does not have all writes of."""
        self.copied: list[tuple[str, int, bytes]] = []
        self.learned: list[tuple[str, int]] = []

    def offline_policy(self, _caller: Caller) -> OfflinePolicy:
        return OfflinePolicy("n1", self.is_up)

    def goes_to_cloud(self, info: RequestInfo, _caller: Caller) -> bool:
        return self.is_up and info.path != self.owed

    def learn(self, _component: str, _caller: Caller, info: RequestInfo, status: int) -> None:
        self.learned.append((info.path, status))

    def keep_response(self, _caller: Caller, asked: OfflineRequest, answer: RawResponse) -> None:
        self.copied.append((asked.info.path, answer.status, answer.body))


class World(Routed):
    def __init__(self) -> None:
        self.standing = Standing()
        super().__init__(cast(CachedRelay, self.standing))


@pytest.fixture
async def routed() -> AsyncIterator[World]:
    made = World()
    yield made
    made.inputs.close()


def is_answered_here(flow: http.HTTPFlow) -> bool:
    answerer = decided(flow).answerer
    assert answerer in (None, ANSWERERS.get(route_of(flow)))
    return answerer is not None


async def test_while_there_is_a_cloud_a_request_goes_there_and_can_be_rescued(routed: World) -> None:
    flow = await routed.request(NODE, "cached")
    assert route_of(flow) is RouteKind.CACHED_RELAY
    assert not is_answered_here(flow)
    assert decided(flow).failover is not None


@pytest.mark.parametrize("why", ["no cloud", "an earlier write waits"])
async def test_otherwise_the_hub_answers_it_as_it_is(routed: World, why: str) -> None:
    target = f"{NODE}/status?fieldManager=k"
    if why == "no cloud":
        routed.standing.is_up = False
    else:
        routed.standing.owed = f"{NODE}/status"
    flow = await routed.request(target, "cached", method="PATCH", Content_Type="x", Accept="y")
    assert is_answered_here(flow)
    assert (flow.request.method, flow.request.path) == ("PATCH", target)
    assert (flow.request.headers["Accept"], flow.request.headers["Accept-Encoding"]) == ("y", "gzip")
    assert (decided(flow).failover, decided(flow).sent) == (None, 0)


@pytest.mark.parametrize("is_up", [True, False])
async def test_the_hub_answers_for_the_lease_of_the_node_at_all_times(routed: World, is_up: bool) -> None:
    routed.standing.is_up = is_up
    flow = await routed.request(LEASE, "cached", method="PUT")
    assert is_answered_here(flow)
    assert route_of(flow) is RouteKind.LOCAL


@pytest.mark.parametrize(
    ("target", "component", "caller"),
    [(NODE, "stranger", HUB), (NODE, "cached", NOBODY), ("/metrics", "cached", HUB)],
)
async def test_what_the_node_cannot_answer_has_no_rescue(
    routed: World, target: str, component: str, caller: Caller
) -> None:
    for routed.standing.is_up in (True, False):
        flow = await routed.request(target, component, caller=caller)
        assert not is_answered_here(flow)
        assert decided(flow).failover is None


@pytest.mark.parametrize(("caller", "kept"), [(HUB, None), (POD, "Bearer pod")])
async def test_a_rescued_request_is_answered_by_the_hub_and_carries_no_lent_token(
    routed: World, caller: Caller, kept: str | None
) -> None:
    flow = await routed.request(NODE, "cached", caller=caller)
    if caller is HUB:
        lend(flow.request, "Bearer hub")  # as egress does
    failover = decided(flow).failover
    assert failover is not None
    failover(flow)
    assert is_answered_here(flow)
    assert (flow.request.scheme, flow.request.host, flow.request.port) == ("http", *DEAD_ADDRESS)
    assert decided(flow).sent == 1
    assert with_credentials(flow.request).headers.get("Authorization") == kept


async def test_what_the_cloud_answered_is_copied(routed: World) -> None:
    flow = await routed.request(NODE, "cached")
    await routed.answer(flow, b"{}")
    await routed.answer(await routed.request(NODE, "cached"), b"no", 404)
    assert routed.standing.copied == [(NODE, 200, b"{}"), (NODE, 404, b"no")]


async def test_the_copy_is_of_what_the_cloud_said_before_any_filter(routed: World) -> None:
    target = "/api/v1/namespaces/default/services/lb"
    flow = await routed.request(target, "reader")
    decided(flow).failover = lambda _: None
    sent = raw(service("lb", 6, type="LoadBalancer"))
    await routed.answer(flow, sent)
    assert flow.response is not None
    assert flow.response.status_code == 404
    assert routed.standing.copied == [(target, 200, sent)]
    assert routed.standing.learned == [(target, 200)], "what the cloud said of the caller's right, too"


async def test_what_the_node_answered_itself_is_not_copied_and_is_streamed(routed: World) -> None:
    flow = await routed.request(NODE, "cached")
    made = decided(flow)
    failover, made.failover = made.failover, None
    assert failover is not None
    failover(flow)
    await routed.answer(flow, b"{}")
    assert flow.response is not None
    assert flow.response.stream
    assert not routed.standing.copied


async def test_a_node_without_a_cloud_deletes_nothing(routed: World) -> None:
    routed.standing.is_up = False
    flow = await routed.request("/api/v1/namespaces/a/pods/p", "cached", method="DELETE")
    assert flow.response is not None
    assert flow.response.status_code == 403


async def test_what_the_hub_leaves_to_the_cloud_can_be_rescued_again(routed: World) -> None:
    routed.standing.is_up = False
    flow = await routed.request(NODE, "cached")
    for sent in (1, 2):
        relay = decided(flow).relay
        assert relay is not None
        relay(flow)
        assert not is_answered_here(flow)
        failover = decided(flow).failover
        assert failover is not None
        failover(flow)
        assert is_answered_here(flow)
        assert (len(routed.relayed), decided(flow).sent) == (sent, sent)
