"""Each client says whose credentials its requests carry: see also `tests.addons.requests.test_caller`."""

from __future__ import annotations

from typing import cast

import pytest

from addons.requests.caller import Caller, Lending
from addons.requests.clients import Clients
from addons.requests.cloud_identity import HUB_IDENTITY, CloudIdentity
from addons.requests.headers import INTERNAL_HEADER, LENDING_HEADER
from kube.http.client import Client
from kube.http.session import Session

HOW = {INTERNAL_HEADER: "secret"}
TOKEN = "Bearer t"


def headers(client: Client) -> dict[str, str]:
    return {name: value for name, value in client._headers.items() if name != "User-Agent"}


def test_what_each_client_carries() -> None:
    made = Clients(cast(Session, None), "http://127.0.0.1:1", "secret")
    own = {**HOW, LENDING_HEADER: "own"}
    assert headers(made.hub) == headers(made.of(HUB_IDENTITY)) == {**HOW, LENDING_HEADER: "hub"}
    assert headers(made.of_token(TOKEN)) == {**own, "Authorization": TOKEN}
    assert headers(made.of(CloudIdentity("pod", TOKEN))) == {**own, "Authorization": TOKEN}
    assert headers(made.relaying(Caller(Lending.HUB))) == {**HOW, LENDING_HEADER: "hub"}
    assert headers(made.relaying(Caller(Lending.OWN, TOKEN))) == own
    assert headers(made.relaying(Caller(Lending.NONE))) == own


def test_there_is_no_client_of_an_empty_token() -> None:
    with pytest.raises(ValueError, match="token"):
        Clients(cast(Session, None), "http://127.0.0.1:1", "secret").of_token("")
