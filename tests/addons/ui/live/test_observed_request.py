"""The observation of a request: its target and outcome, and never a credential."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from mitmproxy import ctx, http
from mitmproxy import flow as mitmproxy_flow
from mitmproxy.test import tflow, tutils

from addons.link.health import Cloud
from addons.link.link import RelayConnections, UpstreamManager
from addons.link.servers import NO_PARTITION, PoolKey, parse_server
from addons.requests.answers import Answer, Answerer, ClientRequest, ClientStream, Served
from addons.requests.caller import CredentialSource
from addons.requests.request_context import begin, context_of
from addons.requests.route_decision import Route, RouteKind
from addons.server.limits.request_head import MAX_METHOD
from addons.telemetry.observation import Observation, Observations, Tally, line
from addons.ui.live.observed_request import log_requests, observed
from kube.errors import unavailable
from kube.http.kubeconfig import NO_CREDENTIALS
from tests.addons.support.hub_world import settings
from tests.addons.support.samples import SEEN, SERVICES, lead, request_context

VIEW = Route(RouteKind.VIEW, "cached component")
FILTERED = Route(RouteKind.VIEW, "filtered", filtered_by=("discardcloudservice",))
RELAY = Route(RouteKind.RELAY, "component neither filtered nor cached")
BACKED = Route(RouteKind.CACHED_RELAY, "a single object, not filtered")
HIDES = Served(filters=(Tally("discardcloudservice", 0, 0, 1, ("load-balancer",)),))


class SilentAnswerer(Answerer):
    async def answer(self, wanted: ClientRequest, stream: ClientStream) -> Answer | None:
        return None


def seen(
    route: Route | None,
    status: int = 200,
    *,
    cloud: bool = False,
    served: Served | None = None,
    error: str = "",
    target: str = SERVICES,
) -> Observation:
    flow = tflow.tflow(req=tutils.treq(path=target.encode()), resp=tutils.tresp(status_code=status))
    context = request_context(target)
    context.route, context.served = route, served or Served()
    context.answerer = None if cloud else SilentAnswerer()
    begin(flow, context)
    if cloud:
        link = UpstreamManager(Cloud([], "priority"), NO_CREDENTIALS)
        pool_key = PoolKey(parse_server("https://a:6443"), CredentialSource.HUB, NO_PARTITION)
        lead(context, RelayConnections(link, pool_key, is_upgrade=False, may_open=bool))
    if error:
        flow.response, flow.error = None, mitmproxy_flow.Error(error)
    return observed(flow, context_of(flow), flow.request.timestamp_start + 2, 5)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (seen(RELAY, cloud=True), ("relayed", 200, "cloud")),
        (seen(RELAY, 403, cloud=True), ("relayed", 403, "cloud")),
        (seen(RELAY, 503), ("failed", 503, "hub")),
        (seen(RELAY, cloud=True, error="connection refused"), ("failed", 502, "cloud")),
        (seen(RELAY, cloud=True, error="client disconnected"), ("relayed", 499, "cloud")),
        (seen(None, 403), ("refused", 403, "hub")),
        (seen(VIEW, served=Served("cloud", 42)), ("viewed", 200, "cloud")),
        (seen(VIEW, served=Served("copy", 42)), ("offline", 200, "copy")),
        (seen(VIEW, 410), ("refused", 410, "hub")),
        (seen(FILTERED, served=Served("leader", 42)), ("filtered", 200, "leader")),
        (
            seen(FILTERED._replace(kind=RouteKind.RELAY), 404, cloud=True, served=HIDES),
            ("filtered", 404, "cloud"),
        ),
        (seen(BACKED, cloud=True), ("relayed", 200, "cloud")),
        (seen(BACKED, served=Served("cloud")), ("relayed", 200, "cloud")),
        (seen(BACKED, 404, served=Served("copy")), ("offline", 404, "copy")),
        (seen(BACKED, 503, served=Served("copy")), ("failed", 503, "copy")),
        (seen(Route(RouteKind.LOCAL, "this node's lease")), ("viewed", 200, "hub")),
    ],
)
def test_the_verdict_of_a_request_is_observed(made: Observation, expected: tuple[str, int, str]) -> None:
    assert (made.verdict, made.status, made.source) == expected


def test_the_fields_of_a_request_are_observed() -> None:
    made = seen(VIEW, target="/apis/apps/v1/namespaces/a/deployments/b/status")
    assert (made.component, made.verb, made.resource, made.subresource) == (
        *("kube-proxy", "get", "deployments.apps", "status"),
    )
    assert (made.namespace, made.name, made.sent, made.seconds, made.reason) == (
        *("a", "b", 5, 2.0, "cached component"),
    )


def test_an_overlong_method_is_truncated() -> None:
    flow = tflow.tflow(req=tutils.treq(method=b"a" * 8_000), resp=tutils.tresp(status_code=400))
    assert len(observed(flow, None, 0.0, 0).verb) == MAX_METHOD


def test_an_observed_refusal_has_the_reason() -> None:
    flow = tflow.tflow(resp=http.Response.make(503, unavailable("the hub is starting").to_json()))
    begin(flow, request_context())
    assert observed(flow, context_of(flow), 0.0, 0).reason == "the hub is starting"


@pytest.mark.parametrize("is_read", [True, False])
def test_an_observation_hides_credentials(is_read: bool) -> None:
    token = "eyJhbGciOi.eyJzdWIiOi.c2lnbmF0dXJl"
    target = f"/version?access_token={token}&token={token}"
    request = tutils.treq(path=target.encode(), content=token.encode())
    request.headers["Authorization"] = f"Bearer {token}"
    refusal = http.Response.make(401, unavailable(f"Bearer {token} is no token").to_json())
    flow = tflow.tflow(req=request, resp=refusal)
    if is_read:
        begin(flow, request_context(target))
    made = observed(flow, context_of(flow), 0.0, 0)
    assert made.resource == "/version"
    for expected in (line(made), line(made, wide=True), json.dumps(made.to_json())):
        assert token not in expected
        assert "eyJ" not in expected


@pytest.mark.parametrize(
    ("addons", "access_log", "logged", "printed"),
    [({}, False, 0, 0), ({}, True, 1, 0), ({"dumper": object()}, False, 0, 1)],
)
def test_observations_are_logged_and_printed_as_configured(
    addons: dict[str, object],
    access_log: bool,
    logged: int,
    printed: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    master: Any = SimpleNamespace(addons=addons)
    monkeypatch.setattr(ctx, "master", master, raising=False)
    monkeypatch.setattr(ctx, "options", SimpleNamespace(flow_detail=1), raising=False)
    seen = Observations()
    with caplog.at_level(logging.INFO):
        log_requests(seen, settings(access_log=access_log))
        seen.add(SEEN)
        seen.add(SEEN._replace(is_event=True))
    assert len(caplog.records) == logged
    assert capsys.readouterr().out.count("kube-proxy") == printed


def test_a_relayed_watch_ended_by_the_hub_has_the_reason() -> None:
    """It was once reported as a failure with 502."""
    made = seen(RELAY, cloud=True, served=Served(ended="the rules changed"))
    assert (made.verdict, made.status, made.reason) == ("relayed", 200, "ended: the rules changed")
    assert line(made).endswith("ended: the rules changed")
