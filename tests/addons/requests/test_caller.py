"""Which callers the hub lends its identity: a table of listeners, addresses, certificates and headers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import ClassVar, cast

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived
from hypothesis import example, given
from hypothesis import strategies as st

from addons.requests.caller import WEBSOCKET_BEARER, Caller, Lending, Listener, Peer, caller_of
from addons.requests.clients import Clients
from addons.requests.cloud_identity import HUB_IDENTITY, CloudIdentity
from addons.requests.headers import LENDING_HEADER
from kube.errors import StatusError
from kube.http.session import Response, Session

LOCAL = Peer(Listener.PLAIN, is_loopback=True, is_this_node=False)
FAR = Peer(Listener.PLAIN, is_loopback=False, is_this_node=False)
POD = Peer(Listener.TLS, is_loopback=False, is_this_node=False)
LOCAL_POD = Peer(Listener.TLS, is_loopback=True, is_this_node=False)
NODE = Peer(Listener.TLS, is_loopback=False, is_this_node=True)
OTHER = Peer(Listener.TLS, is_loopback=True, is_this_node=False, is_another=True)
HUB = Peer(Listener.INTERNAL, is_loopback=True, is_this_node=False)


TOKENS = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=20)
"""Visible ASCII."""


@pytest.mark.parametrize(
    ("peer", "headers", "lending"),
    [
        (LOCAL, {}, Lending.HUB),
        (FAR, {}, Lending.NONE),
        (POD, {}, Lending.NONE),
        (LOCAL_POD, {}, Lending.NONE),
        (NODE, {}, Lending.HUB),
        (HUB, {LENDING_HEADER: "hub"}, Lending.HUB),
        (LOCAL, {"authorization": "Bearer t"}, Lending.OWN),
        (POD, {"authorization": "Bearer t"}, Lending.OWN),
        (NODE, {"authorization": "Bearer t"}, Lending.OWN),
        (HUB, {LENDING_HEADER: "own", "authorization": "Bearer t"}, Lending.OWN),
        (LOCAL, {"authorization": "Basic dTpw"}, Lending.OWN),
        (LOCAL, {LENDING_HEADER: "own"}, Lending.HUB),
        (POD, {LENDING_HEADER: "hub"}, Lending.NONE),
        (LOCAL, {"sec-websocket-protocol": f"v5.channel.k8s.io, {WEBSOCKET_BEARER}dG9rZW4"}, Lending.OWN),
        (LOCAL, {"sec-websocket-protocol": "v5.channel.k8s.io"}, Lending.HUB),
    ],
)
def test_lending(peer: Peer, headers: dict[str, str], lending: Lending) -> None:
    assert caller_of(peer, headers.items()).lending is lending


def test_impersonation_is_noticed_however_it_is_spelled() -> None:
    assert caller_of(LOCAL, [("Impersonate-User", "admin")]).impersonates
    assert caller_of(LOCAL, [("impersonate-extra-scopes", "x")]).impersonates
    assert not caller_of(LOCAL, [("x-impersonate-user", "admin")]).impersonates


def test_a_token_is_not_shown() -> None:
    assert "secret" not in repr(Caller(Lending.OWN, "Bearer secret"))


BAD = [
    *(
        "",
        " ",
        "garbage",
        "Bearer",
        "Bearer ",
        " Bearer t",
        "Bearer t ",
        "Bearer  t",
        "Bearer t u",
        "Bearer\tt",
    ),
    *("\xa0", "\x1f", "\x85", "Bearer t\xa0", "Bearer \x1f", "Bearer\x00t", "Bearer \u0442", "\udcc2\udca0"),
]


@pytest.mark.parametrize("peer", [LOCAL, FAR, POD, NODE, HUB])
@pytest.mark.parametrize("text", BAD)
def test_what_is_no_scheme_and_token_is_refused_at_every_door(peer: Peer, text: str) -> None:
    assert refusal(peer, [(LENDING_HEADER, "own"), ("Authorization", text)]) == 401


def test_anothers_certificate_is_refused_unless_a_token_comes_with_it() -> None:
    assert refusal(OTHER, []) == 401
    assert caller_of(OTHER, [("Authorization", "Bearer t")]).lending is Lending.OWN


def test_two_authorizations_are_refused() -> None:
    assert refusal(LOCAL, [("Authorization", "Bearer a"), ("authorization", "Bearer b")]) == 401


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ([], 403),
        ([("authorization", "Bearer t")], 403),
        ([(LENDING_HEADER, "none")], 403),
        ([(LENDING_HEADER, "")], 403),
        ([(LENDING_HEADER, "own")], 401),
        ([(LENDING_HEADER, "hub"), ("authorization", "Bearer t")], 403),
        ([(LENDING_HEADER, "hub"), (LENDING_HEADER, "own"), ("authorization", "Bearer t")], 403),
        ([(LENDING_HEADER, "own"), (LENDING_HEADER, "hub")], 403),
    ],
)
def test_an_internal_request_says_what_it_carries_and_carries_it(
    fields: list[tuple[str, str]], code: int
) -> None:
    assert refusal(HUB, fields) == code


@given(st.text(max_size=30) | st.sampled_from(BAD) | st.builds("{} {}".format, TOKENS, TOKENS))
@example("Bearer t")
def test_the_caller_at_the_door_is_the_caller_at_the_internal_listener(text: str) -> None:
    """Whatever HTTP/2 makes of a header value on the way, nobody becomes somebody else, the hub least of all."""
    with suppress(StatusError, UnicodeEncodeError):
        caller = caller_of(POD, [("authorization", text)])
        assert (caller.lending, caller.authorization) == (Lending.OWN, text)
        wire = Wire()
        clients = Clients(cast(Session, wire), "http://127.0.0.1", "secret")
        asyncio.run(through(clients, caller))
        assert [caller_of(HUB, fields) for fields in wire.received] == [caller] * 3


async def through(clients: Clients, caller: Caller) -> None:
    """A caller's request relayed, one of the hub for its token, and one for the user behind it."""
    sent = [("authorization", caller.authorization)]
    await clients.relaying(caller).relay("GET", "/", headers=sent, body=b"")
    await clients.of_token(caller.authorization).relay("GET", "/", headers=(), body=b"")
    await clients.of(CloudIdentity("user", caller.authorization)).relay("GET", "/", headers=(), body=b"")


def test_the_hubs_own_requests_are_the_hubs() -> None:
    wire = Wire()
    clients = Clients(cast(Session, wire), "http://127.0.0.1", "secret")

    async def send() -> None:
        await clients.of(HUB_IDENTITY).relay("GET", "/", headers=(), body=b"")
        await clients.relaying(Caller(Lending.HUB)).relay("GET", "/", headers=(), body=b"")
        # A caller without the hub's identity, whose token was lost on the way.
        await clients.relaying(Caller(Lending.NONE)).relay("GET", "/", headers=(), body=b"")

    asyncio.run(send())
    own, lent, lost = wire.received
    assert [caller_of(HUB, fields).lending for fields in (own, lent)] == [Lending.HUB, Lending.HUB]
    assert refusal(HUB, lost) == 401


class Wire:
    """A session whose requests cross an HTTP/2 connection in memory."""

    def __init__(self) -> None:
        self.received: list[list[tuple[str, str]]] = []

    @asynccontextmanager
    async def open(
        self, method: str, _url: str, *, headers: Iterable[tuple[str, str]], **_rest: object
    ) -> AsyncIterator[Response]:
        client = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        server = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        client.initiate_connection()
        pseudo = [(":method", method), (":path", "/"), (":scheme", "http"), (":authority", "hub")]
        client.send_headers(1, [*pseudo, *headers], end_stream=True)
        for event in server.receive_data(client.data_to_send()):
            if isinstance(event, RequestReceived):
                found = [(_text(name), _text(value)) for name, value in event.headers]
                self.received.append([each for each in found if not each[0].startswith(":")])
        yield cast(Response, Nothing())


class Nothing:
    """An empty answer."""

    status = 200
    headers: ClassVar[dict[str, str]] = {}

    async def read(self, _limit: int) -> bytes:
        return b""


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def refusal(peer: Peer, fields: list[tuple[str, str]]) -> int:
    with pytest.raises(StatusError) as caught:
        caller_of(peer, fields)
    return caught.value.code
