"""Which connections egress lets mitmproxy open, which requests share them, and what follows when one fails."""

from __future__ import annotations

from typing import Any

import pytest
from mitmproxy import connection, http
from mitmproxy.flow import Error
from mitmproxy.proxy.server_hooks import ServerConnectionHookData
from mitmproxy.test import tflow

from addons.egress import Egress
from addons.link.drills import DrillKind
from addons.link.health import Condition, ServerHealth
from addons.link.identities.token_lanes import SHARED_LANES
from addons.link.link import Link
from addons.link.servers import ServerHost, Way
from addons.link.uplinks.connect_errors import Fault, fault_of
from addons.requests.caller import Caller, Lending
from addons.requests.request_context import context_of
from addons.telemetry import metrics
from kube.http.kubeconfig import Credentials, Piece
from tests.addons.support.cutting import Cut
from tests.addons.support.egress_parts import NO_SERVER, A, B, egress_on, flow_of, way_of
from tests.addons.support.guarding import under_guard
from tests.addons.support.observed import beats_of, value_of
from tests.cloud.pki import Authority

# -- connections ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "refused"),
    [
        ((ServerHost(A, Lending.OWN), 6443), False),
        (NO_SERVER, True),
        (("127.0.0.1", 1), True),
        (("127.0.0.1", 4001), True),
        (("a", 6443), True),
        (None, True),
    ],
)
def test_only_named_servers_are_connected_to(
    egress: Egress, address: tuple[str, int] | None, refused: bool
) -> None:
    data = ServerConnectionHookData(connection.Server(address=address), tflow.tclient_conn())
    egress.server_connect(data)
    assert bool(data.server.error) is refused


async def test_a_drill_takes_the_cloud_away(egress: Egress) -> None:
    egress.link.drills.begin(DrillKind.OFFLINE)
    to_cloud = connection.Server(address=(ServerHost(A, Lending.HUB), 6443))
    data = ServerConnectionHookData(to_cloud, tflow.tclient_conn())
    egress.server_connect(data)
    assert fault_of(data.server.error or "") is Fault.SERVER
    egress.link.close()


async def test_a_drill_cuts_what_is_open(egress: Egress, connections: Cut) -> None:
    to_cloud = connection.Server(address=(ServerHost(A, Lending.HUB), 6443))
    connections.open = [to_cloud, connection.Server(address=NO_SERVER)]
    egress.link.drills.begin(DrillKind.OFFLINE)
    assert connections.ended == [to_cloud]
    egress.link.drills.end()
    assert connections.ended == [to_cloud], "the end of a drill breaks nothing"


@pytest.mark.parametrize(("allowed", "paced"), [(True, 1), (False, 0)])
def test_connections_to_the_cloud_are_read_at_a_pace_where_drills_are_allowed(
    egress: Egress, connections: Cut, allowed: bool, paced: int
) -> None:
    egress.link.drills.are_allowed = allowed
    conn = connection.Server(address=(ServerHost(A, Lending.HUB), 6443))
    egress.server_connected(ServerConnectionHookData(conn, tflow.tclient_conn()))
    assert len(connections.paced) == paced


def test_before_the_start_no_server_is_connected_to(connections: Cut) -> None:
    data = ServerConnectionHookData(connection.Server(address=NO_SERVER), tflow.tclient_conn())
    under_guard(Egress(connections, Link(connections.cut_server))).server_connect(data)
    assert data.server.error


def failed_connection(egress: Egress, why: str, server: Any = A) -> None:
    conn = connection.Server(address=(ServerHost(server, Lending.HUB), 6443))
    conn.error = why
    egress.server_connect_error(ServerConnectionHookData(conn, tflow.tclient_conn()))


def test_a_refused_connection_is_noticed_at_once_and_others_to_that_server_are_cut(
    egress: Egress, connections: Cut
) -> None:
    connections.open = [
        connection.Server(address=(ServerHost(server, lending), 6443))
        for server in (A, B)
        for lending in Lending
    ] + [connection.Server(address=NO_SERVER), connection.Server(address=None)]
    beats = beats_of(egress.link.changed)
    failed_connection(egress, "[Errno 111] Connect call failed")
    assert egress.link.cloud.servers[0].condition is Condition.DOWN
    assert connections.ended == connections.open[:3]
    assert beats() == 1
    assert value_of(metrics.SERVER_UP.labels(str(A))) == 0
    failed_connection(egress, "again")
    assert len(connections.ended) == 3, "told once"


def test_a_connection_that_the_node_cannot_open_cuts_no_healthy_watch(
    egress: Egress, connections: Cut
) -> None:
    connections.open = [connection.Server(address=(ServerHost(A, Lending.HUB), 6443))]
    failed_connection(egress, "[Errno 24] Too many open files")
    assert egress.link.cloud.servers[0].usable
    assert not connections.ended


def test_open_connections_are_counted_by_server(egress: Egress) -> None:
    for server, host in (("a", ServerHost(A, Lending.HUB)), ("other", "127.0.0.1")):
        data = ServerConnectionHookData(connection.Server(address=(host, 6443)), tflow.tclient_conn())
        egress.server_connected(data)
        egress.server_connected(data)
        egress.server_disconnected(data)
        assert [each.connections for each in egress.link.cloud.servers] == [1, 0], server


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
    conn = connection.Server(address=NO_SERVER)
    conn.error = "refused"
    egress.server_connect_error(ServerConnectionHookData(conn, tflow.tclient_conn()))
    assert {each.condition for each in egress.link.cloud.servers} == {Condition.UNKNOWN}


@pytest.mark.parametrize("why", ["client disconnected", "connection cancelled", "cut by the hub"])
def test_a_client_that_leaves_while_its_connection_is_made_says_nothing_of_the_server(
    egress: Egress, connections: Cut, why: str
) -> None:
    """mitmproxy cancels the connection attempt and calls it an error, with these words (proxy/server.py)."""
    failed_connection(egress, why)
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


def test_a_bad_token_disturbs_no_connection_of_the_hub_or_of_a_caller_with_a_good_one(egress: Egress) -> None:
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
