"""The credentials of each client's requests; see also `tests.addons.requests.test_caller`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any, cast

import pytest

from addons.requests.caller import Caller, CredentialSource
from addons.requests.clients import MAX_TOKENS, Clients, TokenClients
from addons.requests.cloud_identity import HUB_IDENTITY, CloudIdentity
from addons.telemetry import metrics
from kube.errors import StatusError, forbidden, unauthorized
from kube.http.client import Client, Unreachable
from kube.http.session import Session
from tests.addons.support.observed import value_of
from tests.addons.support.scripted_client import Asked, ScriptedClient

TOKEN = "Bearer t"
LENT, OWN = cast(Session, "the hub's"), cast(Session, "the callers'")


def test_each_client_sends_only_its_own_credentials() -> None:
    def carried(client: Client) -> tuple[Session, dict[str, str]]:
        headers = {name: value for name, value in client._headers.items() if name != "User-Agent"}
        return client._session, headers

    made = Clients(LENT, OWN)
    own = {"Authorization": TOKEN}
    assert carried(made.hub) == carried(made.of(HUB_IDENTITY)) == (LENT, {})
    assert carried(made.of_token(TOKEN)) == (OWN, own)
    assert carried(made.of(CloudIdentity("pod", TOKEN))) == (OWN, own)
    assert carried(made.relaying(Caller(CredentialSource.HUB))) == (LENT, {})
    for caller in (Caller(CredentialSource.OWN, TOKEN), Caller(CredentialSource.NONE)):
        assert carried(made.relaying(caller)) == (OWN, {}), "the request itself has the token, or is refused"


def test_an_empty_token_has_no_client() -> None:
    with pytest.raises(ValueError, match="token"):
        Clients(LENT, OWN).of_token("")


# -- the tokens of one user ----------------------------------------------------------------------------------------


class Tokens:
    """A cloud with known tokens; `asked` are the tokens that it received."""

    def __init__(self, *good: str) -> None:
        self.good = set(good)
        self.error: StatusError | None = None
        self.asked: list[str] = []

    def client(self, token: str) -> Client:
        def script(asked: Asked) -> Any:
            self.asked.append(token)
            if self.error is not None or token not in self.good:
                raise self.error or unauthorized("Unauthorized")
            return _nothing() if asked.method == "WATCH" else {}

        return ScriptedClient(script)

    def clients(self, *tokens: str) -> TokenClients:
        made = TokenClients(tokens[0], self.client(tokens[0]))
        for token in tokens:
            made.add(token, self.client(token))
        return made


async def _nothing() -> AsyncIterator[bytes]:
    pieces: tuple[bytes, ...] = ()
    for piece in pieces:
        yield piece


async def _list(client: Client) -> None:
    await client.request("GET", "/api/v1/pods")


async def _watch(client: Client) -> None:
    async with client.watch("/api/v1/pods", query={}, accept="", timeout=1) as stream:
        assert [chunk async for chunk in stream.chunks] == []


@pytest.mark.parametrize("ask", [_list, _watch])
async def test_a_user_with_a_second_token_continues_when_one_expires(ask: Callable[[Client], Any]) -> None:
    cloud = Tokens("a", "b")
    client = cloud.clients("a", "b", "dead")
    await ask(client)
    await ask(client)
    assert cloud.asked == ["dead", "b", "b"]


async def test_a_users_last_token_is_retained_and_gets_the_clouds_401() -> None:
    cloud = Tokens()
    client = cloud.clients("a", "b")
    for _ in range(2):
        with pytest.raises(StatusError, match="Unauthorized"):
            await _list(client)
    assert cloud.asked == ["b", "a", "a"]
    cloud.good.add("new")
    client.add("new", cloud.client("new"))
    await _list(client)


async def test_a_403_does_not_discard_the_token() -> None:
    cloud = Tokens("a", "b")
    cloud.error = forbidden("no")
    with pytest.raises(StatusError, match="no"):
        await _list(cloud.clients("a", "b"))
    assert cloud.asked == ["b"]


async def test_the_tokens_of_a_user_are_bounded() -> None:
    cloud = Tokens("0", "1")
    counter = metrics.BOUNDS_REACHED.labels("tokens of a user")
    before = value_of(counter)
    client = cloud.clients(*map(str, range(MAX_TOKENS + 1)))
    assert value_of(counter) == before + 1
    await _list(client)
    assert cloud.asked[-1] == "1"


async def test_a_401_to_the_nodes_identity_is_an_outage_for_the_nodes_readers_only() -> None:
    class Refusing:
        """A session whose server refuses all credentials."""

        status, headers = 401, MappingProxyType[str, str]({})

        @asynccontextmanager
        async def open(self, *_: object, **__: object) -> AsyncIterator[Refusing]:
            yield self

        async def read(self, _limit: int) -> bytes:
            return b""

    made = Clients(*[cast(Session, Refusing())] * 2)
    with pytest.raises(Unreachable, match="identity"):
        await made.of(HUB_IDENTITY).request("GET", "/")
    for client in (made.hub, made.of(CloudIdentity("pod", TOKEN))):
        with pytest.raises(StatusError):
            await client.request("GET", "/")


def test_only_the_hubs_identity_has_no_token() -> None:
    assert HUB_IDENTITY.is_hub
    assert not CloudIdentity("pod", "Bearer t").is_hub


@pytest.mark.parametrize(("user", "authorization"), [("pod", ""), ("", "Bearer t")])
def test_an_identity_of_a_user_needs_a_token(user: str, authorization: str) -> None:
    with pytest.raises(ValueError, match="token"):
        CloudIdentity(user, authorization)


def test_a_token_is_not_shown_and_tokens_rotate() -> None:
    one, other = CloudIdentity("pod", "Bearer secret"), CloudIdentity("pod", "Bearer later")
    assert "secret" not in repr(one)
    assert (one == other, hash(one) == hash(other)) == (True, True)
