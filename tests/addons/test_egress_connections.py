"""Which connections are opened, which requests share them, and what follows when one fails."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
from mitmproxy import connection, http
from mitmproxy.flow import Error
from mitmproxy.proxy.server_hooks import ServerConnectionHookData
from mitmproxy.test import tflow

from addons.egress import Egress
from addons.link.drills import DrillKind
from addons.link.health import Condition, ServerHealth
from addons.link.servers import SHARED_LANES, Way, parse_server
from addons.link.uplinks.uplink import Fault, fault_of
from addons.requests.caller import Caller, Lending
from addons.requests.exchange.lent_tunnel import AskedWay
from addons.requests.request_context import context_of
from addons.telemetry import metrics
from kube.http.kubeconfig import Credentials, Piece
from tests.addons.support.cutting import Cut
from tests.addons.support.egress_parts import NO_SERVER, A, B, egress_on, flow_of, way_of
from tests.addons.support.observed import beats_of, value_of
from tests.cloud.pki import Authority

# -- connections ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", [("a", 6443), NO_SERVER, None])
def test_mitmproxy_itself_connects_to_nobody(egress: Egress, address: tuple[str, int] | None) -> None:
    data = ServerConnectionHookData(connection.Server(address=address), tflow.tclient_conn())
    egress.server_connect(data)
    assert data.server.error


async def test_a_drill_takes_the_cloud_away_from_who_is_lent_a_way(egress: Egress, connections: Cut) -> None:
    egress.link.drills.begin(DrillKind.OFFLINE)
    assert connections.ended == [A, B]
    with pytest.raises(OSError, match="Errno") as refused:
        await egress.link.lend(A)
    assert fault_of(str(refused.value)) is Fault.SERVER
    connections.ended.clear()
    egress.link.drills.end()
    assert connections.ended == [], "the end of a drill breaks nothing"
    egress.link.close()


async def test_no_way_is_lent_beyond_the_bound_of_connections(egress: Egress, connections: Cut) -> None:
    egress.lend(Mock(lend=lambda *_: A))
    asked = AskedWay("client", "10.0.0.5", (), A.host, A.port)
    egress.lend_way(asked)
    connections.is_full = True
    assert asked.lent is not None
    with pytest.raises(ConnectionError, match="too many connections"):
        await asked.lent.open()


def test_a_refused_connection_is_noticed_at_once_and_others_to_that_server_are_cut(
    egress: Egress, connections: Cut
) -> None:
    beats = beats_of(egress.link.cloud.changed)
    egress.link.connect_failed(A, "[Errno 111] Connect call failed")
    assert egress.link.cloud.servers[0].condition is Condition.DOWN
    assert connections.ended == [A]
    assert beats() == 1
    assert value_of(metrics.SERVER_UP.labels(str(A))) == 0
    egress.link.connect_failed(A, "again")
    assert connections.ended == [A], "told once"


def test_a_connection_that_the_node_cannot_open_cuts_no_healthy_watch(
    egress: Egress, connections: Cut
) -> None:
    egress.link.connect_failed(A, "[Errno 24] Too many open files")
    assert egress.link.cloud.servers[0].usable
    assert not connections.ended


@pytest.mark.parametrize(
    ("message", "is_probed"), [("server closed connection", True), ("Client disconnected.", False)]
)
@pytest.mark.parametrize("is_rescued", [False, True])
def test_a_connection_that_breaks_under_a_request_has_the_server_probed(
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


def test_another_address_that_cannot_be_reached_says_nothing_of_the_cloud(egress: Egress) -> None:
    egress.link.connect_failed(parse_server("https://127.0.0.1:4000"), "[Errno 111] refused")
    assert {each.condition for each in egress.link.cloud.servers} == {Condition.UNKNOWN}


@pytest.mark.parametrize("why", ["client disconnected", "connection cancelled", "cut by the hub"])
def test_a_client_that_leaves_while_connecting_says_nothing_of_the_server(
    egress: Egress, connections: Cut, why: str
) -> None:
    egress.link.connect_failed(A, why)
    assert egress.link.cloud.servers[0].condition is Condition.UNKNOWN
    assert not connections.ended


# -- which connection --------------------------------------------------------------------------------------------


def lane_of(egress: Egress, token: str, status: int) -> Way:
    """The connections of a request with a token, which the server answers with a status."""
    caller = Caller(Lending.OWN, f"Bearer {token}")
    flow = flow_of(caller=caller, headers={"Authorization": f"Bearer {token}"})
    egress.requestheaders(flow)
    flow.response = http.Response.make(status)
    egress.responseheaders(flow)
    return way_of(flow)


def test_a_bad_token_disturbs_no_connection_of_the_hub_or_of_good_callers(egress: Egress) -> None:
    """kube-apiserver ends a connection that brought a bad token, and with it all watches on that connection."""
    new = {lane_of(egress, token, 200) for token in ("good", "other")}
    good, other, again = (lane_of(egress, token, 200) for token in ("good", "other", "good"))
    bad = [lane_of(egress, f"bad {number}", 401) for number in range(1000)]
    flow = flow_of()
    egress.requestheaders(flow)
    hub = way_of(flow)
    assert good == again
    assert len({good, other, hub}) == 3
    assert {good, other, hub}.isdisjoint(bad)
    assert len({*new, *bad}) == SHARED_LANES, "for a thousand invented tokens"


def test_a_new_certificate_has_connections_of_its_own(connections: Cut) -> None:
    """kube-apiserver answers 401 on connections that show a certificate that has ended."""
    authority = Authority()
    pieces = Piece(b""), Piece(b"")
    egress = egress_on(connections, Credentials("", "", False, Piece(), *pieces, Piece()))
    ways: list[Way] = []
    for name in ("before", "before", "after"):
        if not ways or name == "after":
            issued = authority.issue_node(name)
            pieces[0].data, pieces[1].data = issued.certificate, issued.key
        flow = flow_of()
        egress.requestheaders(flow)
        ways.append(way_of(flow))
    assert ways[0] == ways[1]
    assert ways[2] != ways[1]
    assert {each.server for each in ways} == {A}
    egress.link.close()
