"""The router: requests that the node answers instead of the cloud, and watches that an edit of the rules ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

import pytest
from mitmproxy import http

from addons.offline.cached_relay import CachedRelay
from addons.offline.offline_request import OfflineRequest
from addons.requests.caller import Caller
from addons.requests.hidden_credentials import lend, with_credentials
from addons.requests.offline_policy import OfflinePolicy
from addons.requests.request_context import context_of
from addons.requests.route_decision import RouteKind
from addons.rules.table import parse_rules
from addons.server.messages import UNROUTED
from kube.http.client import RawResponse
from kube.requests.request_info import RequestInfo
from tests.addons.support.routed import ANSWERERS, Routed, decided, route_of
from tests.addons.support.samples import HUB, NOBODY, POD, SERVICES, SLICES, raw, service

RELAY, VIEW = RouteKind.RELAY, RouteKind.VIEW


@pytest.mark.parametrize(
    ("target", "component", "route"),
    [
        (f"{SLICES}?watch=true&resourceVersion=100", "other", VIEW),
        (
            f"{SLICES}?watch=true&resourceVersion=100&sendInitialEvents=false&resourceVersionMatch=NotOlderThan",
            "other",
            VIEW,
        ),
        ("/apis/discovery.k8s.io/v1/watch/endpointslices?resourceVersion=100", "other", VIEW),
        # The client's state is newer than the edit, or the client gets the complete state.
        (f"{SLICES}?watch=true&resourceVersion=101", "other", RELAY),
        (f"{SLICES}?watch=true&resourceVersion=0", "other", RELAY),
        (f"{SLICES}?watch=true", "other", RELAY),
        (
            f"{SLICES}?watch=true&resourceVersion=100&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
            *("other", RELAY),
        ),
        (f"{SLICES}?resourceVersion=100", "other", RELAY),
        # The cloud refuses the version itself; a view knows its own history.
        (f"{SLICES}?watch=true&resourceVersion=x", "other", RELAY),
        (f"{SLICES}?watch=true&resourceVersion=100", "reader", VIEW),
        # No filter handles the resource, and the cloud may have been restored.
        ("/api/v1/namespaces?watch=true&resourceVersion=100", "other", VIEW),
    ],
)
async def test_a_relayed_watch_does_not_resume_over_an_edit(
    routed: Routed, target: str, component: str, route: RouteKind
) -> None:
    """A view removed by the edit may have issued the version and hidden objects, which the cloud would never send."""
    routed.issued_under_other_rules = 100
    assert route_of(await routed.request(target, component)) is route


async def test_a_watch_in_a_form_that_only_the_cloud_supports_is_410_after_an_edit(routed: Routed) -> None:
    routed.issued_under_other_rules = 100
    old = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
    flow = await routed.request(f"{SLICES}?watch=true&resourceVersion=100", "other", accept=old)
    assert flow.response is not None
    assert flow.response.status_code == 410


async def test_relayed_watches_from_before_a_restore_are_ended_when_it_is_detected(
    routed: Routed, broken: list[http.HTTPFlow]
) -> None:
    ended = await routed.request(f"{SLICES}?watch=true&resourceVersion=100", "other")
    await routed.request(f"{SLICES}?watch=true&resourceVersion=101", "other")
    routed.issued_under_other_rules = 100
    routed.router.restored("endpointslices.discovery.k8s.io")
    assert broken == [ended]


# -- requests that fall through to the cloud -----------------------------------------------------------------------


async def leaves_to_cloud(routed: Routed, target: str) -> http.HTTPFlow:
    """Return a request that falls through to the cloud."""
    flow = await routed.request(target, "cached")
    context = context_of(flow)
    assert context is not None
    assert context.relay is not None
    context.relay(flow)
    assert context.answerer is None
    assert route_of(flow) is RELAY
    return flow


@pytest.mark.parametrize("target", [f"{SLICES}?watch=true", f"{SLICES}?resourceVersion=0"])
async def test_a_watch_that_falls_through_is_relayed_and_ended_by_an_edit(
    routed: Routed, broken: list[http.HTTPFlow], target: str
) -> None:
    """Such a watch once continued under the former rules for up to an hour."""
    flow, refused = await leaves_to_cloud(routed, target), await leaves_to_cloud(routed, target)
    assert routed.relayed == [flow, refused]
    flow.response = http.Response.make(200)
    routed.router.responseheaders(flow)
    assert flow.response.status_code == 200
    routed.known.rules = parse_rules({"filter_servicetopology": "cached/endpointslices#list;watch"})
    routed.router.rules_changed()
    assert broken == [flow, refused]
    refused.response = http.Response.make(200)
    routed.router.responseheaders(refused)
    assert refused.response.status_code == 503


async def test_a_watch_that_falls_through_is_ended_after_a_cluster_restore(
    routed: Routed, broken: list[http.HTTPFlow]
) -> None:
    ended = await leaves_to_cloud(routed, f"{SLICES}?watch=true")
    await leaves_to_cloud(routed, f"{SERVICES}?watch=true")
    routed.router.restored("endpointslices.discovery.k8s.io")
    assert broken == [ended]


NODE = "/api/v1/nodes/n1"


class NoEndedWrites:
    """An account of ended writes that stays empty."""

    count = 0


class FakeCachedRelay:
    """The cached relay as the router uses it."""

    def __init__(self) -> None:
        self.is_up = True
        self.owed = ""
        """The path of an object with a pending write."""
        self.copied: list[tuple[str, int, bytes]] = []
        self.learned: list[tuple[str, int]] = []
        self.accepted, self.answers = NoEndedWrites(), self

    def offline_policy(self, _caller: Caller) -> OfflinePolicy:
        return OfflinePolicy("n1", self.is_up)

    def goes_to_cloud(self, info: RequestInfo, _caller: Caller) -> bool:
        return self.is_up and info.path != self.owed

    def learn(self, _component: str, _caller: Caller, info: RequestInfo, status: int) -> None:
        self.learned.append((info.path, status))

    async def begin_write(self, info: RequestInfo) -> bool:
        return False

    def keep_response(self, _caller: Caller, asked: OfflineRequest, answer: RawResponse, _since: int) -> None:
        self.copied.append((asked.info.path, answer.status, answer.body))


class World(Routed):
    def __init__(self) -> None:
        self.standing = FakeCachedRelay()
        super().__init__(cast(CachedRelay, self.standing))


@pytest.fixture
async def relaying() -> AsyncIterator[World]:
    made = World()
    yield made
    made.inputs.close()


def is_answered_here(flow: http.HTTPFlow) -> bool:
    answerer = decided(flow).answerer
    assert answerer in (None, ANSWERERS.get(route_of(flow)))
    return answerer is not None


async def test_a_cached_relay_is_sent_to_the_cloud_with_a_failover_while_online(relaying: World) -> None:
    flow = await relaying.request(NODE, "cached")
    assert route_of(flow) is RouteKind.CACHED_RELAY
    assert not is_answered_here(flow)
    assert decided(flow).failover is not None


@pytest.mark.parametrize("why", ["no cloud", "an earlier write waits"])
async def test_a_cached_relay_is_answered_by_the_hub_offline_or_behind_a_pending_write(
    relaying: World, why: str
) -> None:
    target = f"{NODE}/status?fieldManager=k"
    if why == "no cloud":
        relaying.standing.is_up = False
    else:
        relaying.standing.owed = f"{NODE}/status"
    flow = await relaying.request(target, "cached", method="PATCH", Content_Type="x", Accept="y")
    assert is_answered_here(flow)
    assert (flow.request.method, flow.request.path) == ("PATCH", target)
    assert (flow.request.headers["Accept"], flow.request.headers["Accept-Encoding"]) == ("y", "gzip")
    assert (decided(flow).failover, decided(flow).sent) == (None, 0)


@pytest.mark.parametrize("is_up", [True, False])
async def test_the_hub_always_answers_requests_for_the_nodes_lease(relaying: World, is_up: bool) -> None:
    relaying.standing.is_up = is_up
    flow = await relaying.request(
        "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1", "cached", method="PUT"
    )
    assert is_answered_here(flow)
    assert route_of(flow) is RouteKind.LOCAL


@pytest.mark.parametrize(
    ("target", "component", "caller"),
    [(NODE, "stranger", HUB), (NODE, "cached", NOBODY), ("/metrics", "cached", HUB)],
)
async def test_a_request_that_the_node_cannot_answer_has_no_failover(
    relaying: World, target: str, component: str, caller: Caller
) -> None:
    for relaying.standing.is_up in (True, False):
        flow = await relaying.request(target, component, caller=caller)
        assert not is_answered_here(flow)
        assert decided(flow).failover is None


@pytest.mark.parametrize(("caller", "cached"), [(HUB, None), (POD, "Bearer pod")])
async def test_a_request_that_fails_over_is_answered_by_the_hub_without_its_token(
    relaying: World, caller: Caller, cached: str | None
) -> None:
    flow = await relaying.request(NODE, "cached", caller=caller)
    if caller is HUB:
        lend(flow.request, "Bearer hub")  # egress sets this
    failover = decided(flow).failover
    assert failover is not None
    failover(flow)
    assert is_answered_here(flow)
    assert (flow.request.scheme, flow.request.host, flow.request.port) == ("http", *UNROUTED)
    assert decided(flow).sent == 1
    assert with_credentials(flow.request).headers.get("Authorization") == cached


async def test_a_response_of_the_cloud_is_cached(relaying: World) -> None:
    flow = await relaying.request(NODE, "cached")
    await relaying.answer(flow, b"{}")
    await relaying.answer(await relaying.request(NODE, "cached"), b"no", 404)
    assert relaying.standing.copied == [(NODE, 200, b"{}"), (NODE, 404, b"no")]


async def test_the_cached_response_is_the_clouds_unfiltered_one(relaying: World) -> None:
    target = "/api/v1/namespaces/default/services/lb"
    flow = await relaying.request(target, "reader")
    decided(flow).failover = lambda _: None
    sent = raw(service("lb", 6, type="LoadBalancer"))
    await relaying.answer(flow, sent)
    assert flow.response is not None
    assert flow.response.status_code == 404
    assert relaying.standing.copied == [(target, 200, sent)]
    assert relaying.standing.learned == [(target, 200)], "what the cloud said of the caller's right, too"


async def test_a_response_of_the_node_is_streamed_and_not_cached(relaying: World) -> None:
    flow = await relaying.request(NODE, "cached")
    made = decided(flow)
    failover, made.failover = made.failover, None
    assert failover is not None
    failover(flow)
    await relaying.answer(flow, b"{}")
    assert flow.response is not None
    assert flow.response.stream
    assert not relaying.standing.copied


async def test_a_delete_is_refused_without_a_cloud(relaying: World) -> None:
    relaying.standing.is_up = False
    flow = await relaying.request("/api/v1/namespaces/a/pods/p", "cached", method="DELETE")
    assert flow.response is not None
    assert flow.response.status_code == 403


async def test_a_request_that_fell_through_to_the_cloud_can_fail_over(relaying: World) -> None:
    relaying.standing.is_up = False
    flow = await relaying.request(NODE, "cached")
    for sent in (1, 2):
        relay = decided(flow).relay
        assert relay is not None
        relay(flow)
        assert not is_answered_here(flow)
        failover = decided(flow).failover
        assert failover is not None
        failover(flow)
        assert is_answered_here(flow)
        assert (len(relaying.relayed), decided(flow).sent) == (sent, sent)
