"""Egress: the server of a request, its identity, its connection, and when connections are closed."""

from __future__ import annotations

import time
from unittest.mock import Mock

import pytest
from mitmproxy import connection, http
from mitmproxy.flow import Error
from mitmproxy.proxy.server_hooks import ServerConnectionHookData
from mitmproxy.test import tflow

from addons.egress import Egress
from addons.link.drills import DrillKind
from addons.link.health import RETRY_REFUSED, Condition, ServerHealth
from addons.link.servers import SHARED_PARTITIONS, PoolKey, Server, parse_server
from addons.link.uplinks.uplink import Fault, fault_of
from addons.offline.cached_response import MAX_CACHED
from addons.requests.caller import Caller, CredentialSource
from addons.requests.hidden_credentials import hide, with_credentials
from addons.requests.request_context import context_of
from addons.requests.route_decision import Route, RouteKind
from addons.server.peer.lent_tunnel import TunnelRequest
from addons.telemetry import metrics
from kube.errors import StatusError
from kube.http.kubeconfig import Credentials, DataOrFile, User
from tests.addons.support.cutting import FakeConnections
from tests.addons.support.egress_parts import NO_SERVER, A, B, counted, egress_on, flow_of, pool_key_of
from tests.addons.support.observed import notifications_of, value_of
from tests.addons.support.routed import NoAnswerer
from tests.addons.support.samples import HUB, NOBODY, POD

VIEW = Route(RouteKind.VIEW, "")
FILTERED = Route(RouteKind.RELAY, "", ("masterservice",))


def code_of(flow: http.HTTPFlow) -> int:
    return flow.response.status_code if flow.response is not None else 0


# -- the choice of a server ----------------------------------------------------------------------------------------


def test_a_relayed_request_is_sent_to_a_server_that_is_up(egress: Egress) -> None:
    egress.link.cloud.servers[0].failed("down")
    flow = flow_of()
    egress.requestheaders(flow)
    assert (flow.request.host, flow.request.port, flow.request.scheme) == ("b", 6443, "https")
    assert pool_key_of(flow).server == B


def test_a_relayed_request_records_that_its_server_owes_a_response(egress: Egress) -> None:
    egress.requestheaders(flow_of())
    health = next(each for each in egress.link.cloud.servers if each.first_unanswered > each.last_received)
    egress.link.note_received(health.server)
    assert health.first_unanswered < health.last_received


@pytest.mark.parametrize(
    "flow", [tflow.tflow(), flow_of(None), flow_of(VIEW)], ids=["unread", "unrouted", "a view"]
)
def test_a_flow_that_no_part_has_routed_is_500(egress: Egress, flow: http.HTTPFlow) -> None:
    egress.requestheaders(flow)
    context = context_of(flow)
    assert (code_of(flow), context.upstream if context is not None else None) == (500, None)


def test_a_request_without_a_usable_server_is_503_at_once(egress: Egress) -> None:
    for health in egress.link.cloud.servers:
        health.failed("down")
    flow = flow_of()
    egress.requestheaders(flow)
    assert code_of(flow) == 503
    assert flow.response is not None
    assert "Retry-After" not in flow.response.headers


@pytest.mark.parametrize(("caller", "code"), [(HUB, 503), (POD, 0)])
def test_callers_with_tokens_use_a_cloud_that_refuses_the_nodes_identity(
    egress: Egress, caller: Caller, code: int
) -> None:
    for health in egress.link.cloud.servers:
        health.refuses_node = True
    flow = flow_of(caller=caller)
    egress.requestheaders(flow)
    assert code_of(flow) == code
    if code:
        assert flow.response is not None
        assert flow.response.headers["Retry-After"] == str(RETRY_REFUSED)


def test_a_request_answered_by_a_view_gets_no_server(egress: Egress) -> None:
    flow = flow_of(VIEW)
    context_of(flow).answerer = NoAnswerer()  # type: ignore[union-attr]  # flow_of made one
    host = flow.request.host
    egress.requestheaders(flow)
    assert (flow.request.host, code_of(flow)) == (host, 0)


# -- identity ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("caller", "sent"), [(HUB, "Bearer hub-token"), (POD, "Bearer pod"), (NOBODY, None)])
def test_the_hubs_token_is_added_only_for_callers_with_its_identity(
    connections: FakeConnections, caller: Caller, sent: str | None
) -> None:
    token = Credentials(user=User(token=DataOrFile(b"hub-token")))
    egress = egress_on(connections, token)
    own = {"Authorization": caller.authorization} if caller.authorization else {}
    flow = flow_of(caller=caller, headers=own)
    hide(flow.request)
    egress.requestheaders(flow)
    assert with_credentials(flow.request).headers.get("Authorization") == sent
    assert "Authorization" not in flow.request.headers, "nobody is shown a credential"


# -- bytes ---------------------------------------------------------------------------------------------------------


def test_bodies_are_streamed_and_counted_in_both_directions(egress: Egress) -> None:
    flow = flow_of()
    up, down = counted("up"), counted("down")
    egress.requestheaders(flow)
    egress.request(flow)
    flow.response = http.Response.make(200, b"kept by somebody")
    egress.responseheaders(flow)
    assert callable(flow.request.stream)
    assert callable(flow.response.stream)
    assert flow.request.stream(b"abc") == b"abc"
    assert flow.response.stream(b"defgh") == b"defgh"
    egress.response(flow)
    assert (counted("up") - up, counted("down") - down) == (3, 5)
    assert egress.link.cloud.servers[0].last_received == pytest.approx(time.monotonic(), abs=10)


def with_failover(egress: Egress, length: int | None = None) -> http.HTTPFlow:
    """Return a request that the node can answer if its server fails, with the cloud's response."""
    flow = flow_of()
    made = context_of(flow)
    assert made is not None
    made.failover = lambda _: None
    flow.request.content = b"abc"
    egress.requestheaders(flow)
    egress.request(flow)
    flow.response = http.Response.make(200, b"defgh")
    if length is not None:
        flow.response.headers["Content-Length"] = str(length)
    egress.responseheaders(flow)
    return flow


def test_a_request_with_a_failover_is_buffered_and_counted(egress: Egress) -> None:
    up, down = counted("up"), counted("down")
    flow = with_failover(egress)
    egress.response(flow)
    assert flow.response is not None
    assert (bool(flow.request.stream), bool(flow.response.stream)) == (False, False)
    assert (counted("up") - up, counted("down") - down) == (3, 5)
    assert context_of(flow).failover is not None  # type: ignore[union-attr]  # flow_of made one


def test_a_response_too_large_to_buffer_is_streamed_without_a_failover(egress: Egress) -> None:
    down = counted("down")
    flow = with_failover(egress, length=MAX_CACHED + 1)
    assert flow.response is not None
    assert callable(flow.response.stream)
    flow.response.stream(b"defgh")
    egress.response(flow)
    assert context_of(flow).failover is None  # type: ignore[union-attr]  # flow_of made one
    assert counted("down") - down == 5, "counted once"


@pytest.mark.parametrize("is_unframed", [False, True])
def test_an_unframed_response_has_no_failover(egress: Egress, is_unframed: bool) -> None:
    """Only the close of the connection ends its body, as a lost connection does."""
    flow = flow_of()
    made = context_of(flow)
    assert made is not None
    made.failover = lambda _: None
    egress.requestheaders(flow)
    egress.request(flow)
    flow.response, made.is_unframed = http.Response.make(200), is_unframed
    egress.responseheaders(flow)
    assert (made.failover is None) is is_unframed, "whose answer is held is kept"


def test_a_response_by_the_node_is_not_counted_as_traffic_with_the_cloud(egress: Egress) -> None:
    """If the hub answers instead of the cloud, the hook runs a second time for the request."""
    up, down = counted("up"), counted("down")
    flow = with_failover(egress)
    made = context_of(flow)
    assert made is not None
    made.answerer, made.failover, made.upstream = NoAnswerer(), None, None
    egress.request(flow)
    egress.responseheaders(flow)
    egress.response(flow)
    assert (counted("up") - up, counted("down") - down) == (3, 0)


def test_a_response_to_be_filtered_is_not_streamed(egress: Egress) -> None:
    flow = flow_of(FILTERED)
    egress.requestheaders(flow)
    flow.response = http.Response.make(200)
    egress.responseheaders(flow)
    assert not flow.response.stream


def test_a_request_that_falls_through_to_the_cloud_is_sent_buffered(egress: Egress) -> None:
    up = counted("up")
    flow = flow_of(FILTERED, headers={"Content-Length": "3"})
    made = context_of(flow)
    assert made is not None
    made.answerer = NoAnswerer()
    egress.requestheaders(flow)
    assert made.upstream is None
    made.answerer, flow.request.content = None, b"abc"
    egress.relay(flow)
    assert pool_key_of(flow).server == egress.link.cloud.servers[0].server
    assert not flow.request.stream
    assert counted("up") - up == 3
    for health in egress.link.cloud.servers:
        health.failed("down")
    with pytest.raises(StatusError):
        egress.relay(flow)


# -- connections ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", [("a", 6443), NO_SERVER, None])
def test_mitmproxys_own_code_opens_no_connection(egress: Egress, address: tuple[str, int] | None) -> None:
    data = ServerConnectionHookData(connection.Server(address=address), tflow.tclient_conn())
    egress.server_connect(data)
    assert data.server.error


async def test_an_offline_drill_cuts_lent_tunnels(egress: Egress, connections: FakeConnections) -> None:
    egress.link.drills.begin(DrillKind.OFFLINE)
    assert connections.ended == [A, B]
    with pytest.raises(OSError, match="Errno") as refused:
        await egress.link.lend(A)
    assert fault_of(str(refused.value)) is Fault.SERVER
    connections.ended.clear()
    egress.link.drills.end()
    assert connections.ended == [], "the end of a drill breaks nothing"
    egress.link.close()


async def test_no_tunnel_is_lent_beyond_the_bound_of_connections(
    egress: Egress, connections: FakeConnections
) -> None:
    egress.start(egress.link, Mock(lend=lambda *_: A))
    asked = TunnelRequest("client", "10.0.0.5", (), A.host, A.port)
    egress.open_tunnel(asked)
    connections.is_full = True
    assert asked.lent is not None
    with pytest.raises(ConnectionError, match="too many connections"):
        await asked.lent.open()


def test_a_refused_connection_marks_its_server_down_and_cuts_the_rest(
    egress: Egress, connections: FakeConnections
) -> None:
    count = notifications_of(egress.link.cloud.changed)
    egress.link.connect_failed(A, "[Errno 111] Connect call failed")
    assert egress.link.cloud.servers[0].condition is Condition.DOWN
    assert connections.ended == [A]
    assert count() == 1
    assert value_of(metrics.SERVER_UP.labels(str(A))) == 0
    egress.link.connect_failed(A, "again")
    assert connections.ended == [A], "told once"


@pytest.mark.parametrize(
    ("message", "is_probed"), [("server closed connection", True), ("Client disconnected.", False)]
)
@pytest.mark.parametrize("is_rescued", [False, True])
def test_a_connection_that_breaks_during_a_request_triggers_a_probe(
    egress: Egress, monkeypatch: pytest.MonkeyPatch, message: str, is_probed: bool, is_rescued: bool
) -> None:
    probed: list[ServerHealth] = []
    monkeypatch.setattr(egress.link._probes, "suspect", probed.append)
    flow = flow_of()
    context = context_of(flow)
    assert context is not None
    failed_over: list[http.HTTPFlow] = []
    context.failover = failed_over.append if is_rescued else None
    egress.requestheaders(flow)
    if context.failover is not None:
        context.failover(flow)
        assert (failed_over, probed) == ([flow], egress.link.cloud.servers[:1])
        return
    flow.error = Error(message)
    egress.error(flow)
    assert probed == (egress.link.cloud.servers[:1] if is_probed else [])


@pytest.mark.parametrize(
    ("server", "why"),
    [
        (parse_server("https://127.0.0.1:4000"), "[Errno 111] refused"),
        *((A, why) for why in ("client disconnected", "connection cancelled", "cut by the hub")),
    ],
)
def test_errors_of_other_addresses_and_disconnects_do_not_change_the_clouds_health(
    egress: Egress, connections: FakeConnections, server: Server, why: str
) -> None:
    egress.link.connect_failed(server, why)
    assert {each.condition for each in egress.link.cloud.servers} == {Condition.UNKNOWN}
    assert not connections.ended


# -- the choice of a connection ------------------------------------------------------------------------------------


def test_a_bad_token_shares_no_connection_with_the_hub_or_accepted_callers(egress: Egress) -> None:
    """kube-apiserver closes a connection that sent a bad token, with all its watches."""

    def lane_of(egress: Egress, token: str, status: int) -> PoolKey:
        """Return the connection key of a request with a token, which the server answers with this status."""
        caller = Caller(CredentialSource.OWN, f"Bearer {token}")
        flow = flow_of(caller=caller, headers={"Authorization": f"Bearer {token}"})
        egress.requestheaders(flow)
        flow.response = http.Response.make(status)
        egress.responseheaders(flow)
        return pool_key_of(flow)

    new = {lane_of(egress, token, 200) for token in ("good", "other")}
    good, other, again = (lane_of(egress, token, 200) for token in ("good", "other", "good"))
    bad = [lane_of(egress, f"bad {number}", 401) for number in range(1000)]
    flow = flow_of()
    egress.requestheaders(flow)
    hub = pool_key_of(flow)
    assert good == again
    assert len({good, other, hub}) == 3
    assert {good, other, hub}.isdisjoint(bad)
    assert len({*new, *bad}) == SHARED_PARTITIONS, "for a thousand invented tokens"
