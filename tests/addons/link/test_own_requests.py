"""The hub's own requests: their identity, their connection, and their record."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from OpenSSL import SSL

from addons.link.health import ServerHealth
from addons.link.link import PoolLink
from addons.link.own_requests import check_identity
from addons.link.request_records import MAX_RECORDS, RequestRecord, RequestRecords
from addons.link.servers import Server
from addons.link.tls import UpstreamTls
from addons.requests.caller import Caller, CredentialSource, Listener, caller_of
from addons.requests.caller import Peer as Door
from addons.requests.clients import Clients
from addons.requests.cloud_identity import HUB_IDENTITY, CloudIdentity
from addons.telemetry import metrics
from addons.telemetry.labels import HUB
from kube.errors import StatusError
from kube.http.client import Unreachable
from kube.http.kubeconfig import NO_CREDENTIALS
from kube.http.transport.request_fields import request_fields
from tests.addons.support.link_parts import LATER, World, answer, credentials, hold, linked, server_context
from tests.addons.support.observed import until, value_of
from tests.addons.support.refusals import refuses
from tests.kube.support.http2_peer import Asked, Peer
from tests.support.background import beside

TOKEN = "Bearer pod"


def tokens_at(peer: Peer) -> list[str]:
    """Return the Authorization header of each request."""
    return [each.fields.get("authorization", "") for each in peer.asked]


# -- identity ------------------------------------------------------------------------------------------------------


async def test_each_request_carries_the_identity_of_its_session(tmp_path: Path) -> None:
    peer = Peer(answer)
    async with linked(peer, credentials(token="hub"), server_context(tmp_path)) as world:
        assert await world.ask() == b"of /x"
        assert await world.ask(token=TOKEN) == b"of /x"
        assert tokens_at(peer) == ["Bearer hub", TOKEN]
        assert peer.connections == 2, "no connection is shared by two identities"


async def test_a_request_that_lost_its_authorization_is_refused_and_never_sent(tmp_path: Path) -> None:
    """Neither with the hub's credentials nor anonymously."""
    peer = Peer(answer)
    async with linked(peer, credentials(token="hub"), server_context(tmp_path)) as world:
        clients = Clients(world.lent, world.own)
        for caller in (Caller(CredentialSource.OWN, TOKEN), Caller(CredentialSource.NONE)):
            with refuses(401):
                await clients.relaying(caller).relay("GET", "/x", headers=[("Accept", "*/*")], body=b"")
        sent = [("Authorization", TOKEN)]
        with refuses(403):
            await clients.relaying(Caller(CredentialSource.HUB)).relay("GET", "/x", headers=sent, body=b"")
        assert (peer.connections, peer.asked) == (0, [])
        await clients.of(HUB_IDENTITY).relay("GET", "/x", headers=(), body=b"")
        await clients.of(CloudIdentity("user", TOKEN)).relay("GET", "/x", headers=(), body=b"")
        assert tokens_at(peer) == ["Bearer hub", TOKEN]


@pytest.mark.parametrize(
    ("credential_source", "sent", "code"),
    [
        (CredentialSource.HUB, ["Bearer t"], 403),
        (CredentialSource.HUB, [""], 403),
        (CredentialSource.OWN, [], 401),
        (CredentialSource.OWN, [""], 401),
        (CredentialSource.OWN, ["Bearer"], 401),
        (CredentialSource.OWN, ["Bearer a", "Bearer b"], 401),
        (CredentialSource.NONE, [], 401),
        (CredentialSource.NONE, ["Bearer t"], 401),
    ],
)
def test_an_authorization_header_other_than_the_sessions_is_refused(
    credential_source: CredentialSource, sent: list[str], code: int
) -> None:
    with refuses(code):
        check_identity(credential_source, [("authorization", each) for each in sent])


VISIBLE = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=20)


@given(st.text(max_size=30) | st.builds("{} {}".format, VISIBLE, VISIBLE))
@example("Bearer t")
@example("\xa0")
def test_a_relayed_request_keeps_the_identity_of_its_caller(text: str) -> None:
    """For any header value, a request reaches the server with its sender's identity, never the hub's."""
    door = Door(Listener.TLS, is_loopback=False, is_this_node=False)
    try:
        caller = caller_of(door, [("authorization", text)])
    except StatusError:
        return
    headers = [("Authorization", caller.authorization)]
    assert check_identity(CredentialSource.OWN, headers) == text
    assert dict(request_fields("GET", "https", "a:1", "/", headers, None))[b"authorization"] == text.encode()


async def test_only_the_identity_of_the_hub_is_sent_to_another_hub(tmp_path: Path) -> None:
    peer = Peer(answer)
    async with linked(peer, credentials(), server_context(tmp_path)) as world:
        leader = Server("https", "127.0.0.1", world.server.port, "n2")
        world.link.cloud.servers.clear()

        def peer_tls(server: Server, alpn: list[bytes]) -> SSL.Connection:
            assert (server, alpn[0]) == (leader, b"h2")
            return UpstreamTls(credentials()).connection("127.0.0.1", present_certificate=True, alpn=alpn)

        world.link.pool = PoolLink(peer_tls, lambda: {str(leader): ServerHealth(leader)})
        assert await world.ask(at=str(leader)) == b"of /x"
        assert tokens_at(peer) == [""]
        with pytest.raises(ValueError, match="only the hub's own identity"):
            await world.ask(at=str(leader), token=TOKEN)
        assert len(peer.asked) == 1


# -- choice of the server ------------------------------------------------------------------------------------------


async def test_a_request_goes_to_its_named_server_or_to_a_server_that_is_up() -> None:
    peer = Peer(answer)
    async with linked(peer, NO_CREDENTIALS) as world:
        world.health.failed("down")
        clients = Clients(world.lent, world.own)
        with pytest.raises(Unreachable, match="the cloud cannot be reached"):
            await clients.hub.request("GET", "/x")
        with pytest.raises(Unreachable, match="unknown server https://elsewhere:1"):
            await clients.hub.at("https://elsewhere:1").request("GET", "/x")
        assert world.link.choose(str(world.server)) == world.server


async def test_a_response_that_breaks_off_triggers_a_probe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = Peer(lambda asked: asked.hang_up() if asked.fields[":path"] == "/gone" else hold(asked))
    async with linked(peer, credentials(), server_context(tmp_path)) as world:
        suspects: list[ServerHealth] = []
        monkeypatch.setattr(world.link._probes, "suspect", suspects.append)
        with pytest.raises(ConnectionError):
            await world.ask("/gone")
        assert suspects == [world.health]
        async with world.lent.open("GET", "/watch", headers=(), body=None, timeout=LATER) as response:
            chunks = response.chunks()
            assert await anext(chunks) == b"event"
            peer.asked[-1].hang_up()
            with pytest.raises(ConnectionError):
                await anext(chunks)
        assert suspects == [world.health] * 2


async def test_an_unanswered_request_is_recorded_after_the_last_response(tmp_path: Path) -> None:
    peer = Peer(lambda asked: None if asked.fields[":path"] == "/slow" else answer(asked))
    async with linked(peer, credentials(), server_context(tmp_path)) as world:
        await world.ask("/x")
        assert world.health.last_received > world.health.first_unanswered
        async with beside(world.ask("/slow")):
            await until(lambda: len(peer.asked) == 2)
            assert world.health.first_unanswered > world.health.last_received


# -- counters and records ------------------------------------------------------------------------------------------


async def test_own_requests_are_counted_under_the_hubs_name(tmp_path: Path) -> None:
    labels = HUB, "watch", "services", "relay", 200
    before = value_of(metrics.REQUESTS.labels(*labels))
    peer = Peer(hold)
    async with linked(peer, credentials(), server_context(tmp_path)) as world:
        up, down = (metrics.UPSTREAM_BYTES.labels(each, str(world.server)) for each in ("up", "down"))
        # Another test's server may have used this port.
        bytes_before = value_of(up), value_of(down)
        target = "/api/v1/services?watch=true"
        async with world.lent.open("GET", target, headers=(), body=b"body", timeout=LATER) as response:
            assert await anext(response.chunks()) == b"event"
            counts = world.traffic.components()[HUB]
            assert (counts.watches, counts.totals.fetched, counts.reads) == (1, 5, {"services": None})
        assert counts.watches == 0
        assert (value_of(up) - bytes_before[0], value_of(down) - bytes_before[1]) == (4, 5)
        assert world.health.last_received > 0
    assert value_of(metrics.REQUESTS.labels(*labels)) == before + 1


async def test_the_last_requests_are_recorded_without_credentials(tmp_path: Path) -> None:
    peer = Peer(answer)
    async with linked(peer, credentials(token="hub"), server_context(tmp_path)) as world:
        await world.ask("/x?token=secret", token=TOKEN)
        world.health.failed("down")
        await asyncio.gather(world.ask(at=str(Server("https", "127.0.0.1", 1))), return_exceptions=True)
    (found,) = [each.describe() for each in world.records.last]
    assert (found["target"], found["status"], found["identity"]) == ("/x?token=hidden", 200, "own")
    assert (found["receivedBytes"], found["isUnderWay"]) == (len("of /x?token=secret"), False)
    assert not [each for each in ("pod", "secret") if each in str(found)]


async def test_an_unanswered_request_is_recorded_with_the_reason() -> None:
    peer = Peer(answer)
    async with peer.serve():
        world = World(peer, NO_CREDENTIALS)
    with pytest.raises(ConnectionRefusedError):
        await world.ask()
    (record,) = world.records.last
    assert (record.status, "[Errno 111]" in record.failure, record.ended > 0) == (0, True, True)
    assert not world.health.usable, "a refused connection takes a server down at once"
    totals = world.traffic.components()[HUB].totals
    assert (totals.requests, totals.errors) == (1, 0), "nobody has refused anything: the link is down"


@pytest.mark.parametrize(
    ("method", "code", "errors"),
    [("GET", 404, 0), ("PUT", 404, 1), ("GET", 406, 1), ("GET", 503, 1), ("GET", 304, 0)],
)
async def test_a_404_is_not_recorded_as_an_error(tmp_path: Path, method: str, code: int, errors: int) -> None:
    """A hub of the pool answers each probe with 404, and so does a cloud without a kind's CRD."""

    def refuse(asked: Asked) -> None:
        asked.head(code)
        asked.data(b"", end=True)

    async with linked(Peer(refuse), credentials(token="hub"), server_context(tmp_path)) as world:
        await world.ask(method=method)
    totals = world.traffic.components()[HUB].totals
    assert (totals.requests, totals.errors) == (1, errors)


def test_the_last_requests_are_recorded_and_each_step_notifies_listeners() -> None:
    records = RequestRecords()
    reported: list[tuple[str, bool]] = []
    records.listeners.append(lambda record: reported.append((record.target, bool(record.ended))))
    for number in range(MAX_RECORDS + 1):
        record = RequestRecord("GET", f"/{number}", "https://a:6443", CredentialSource.HUB)
        records.begin(record)
        records.end(record)
    assert [each.target for each in records.last] == [f"/{number}" for number in range(1, MAX_RECORDS + 1)]
    assert reported[:3] == [("/0", False), ("/0", True), ("/1", False)]


def test_a_running_request_has_no_end() -> None:
    record = RequestRecord("GET", "/x", "https://a:6443", CredentialSource.HUB, began=0.0)
    assert (record.describe()["isUnderWay"], record.describe()["began"]) == (True, "1970-01-01T00:00:00Z")
    record.failure = "refused"
    assert record.describe()["failure"] == "refused"
