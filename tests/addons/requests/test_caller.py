"""The callers that get the hub's identity, as a table of listeners, certificates and headers; and the claims of
tokens."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mitmproxy import http

from addons.requests.caller import (
    CALLER_FIELDS,
    MAX_TOKEN,
    Caller,
    CredentialSource,
    Listener,
    Peer,
    caller_of,
    expiry_of,
    masked,
)
from addons.requests.hidden_credentials import headers_of, hide
from kube.errors import StatusError
from kube.requests.websocket_offer import WEBSOCKET_BEARER
from tests.addons.support.refusals import refuses

LOCAL = Peer(Listener.PLAIN, is_loopback=True, is_this_node=False)
FAR = Peer(Listener.PLAIN, is_loopback=False, is_this_node=False)
POD = Peer(Listener.TLS, is_loopback=False, is_this_node=False)
LOCAL_POD = Peer(Listener.TLS, is_loopback=True, is_this_node=False)
NODE = Peer(Listener.TLS, is_loopback=False, is_this_node=True)


@pytest.mark.parametrize(
    ("peer", "headers", "credential_source"),
    [
        (LOCAL, {}, CredentialSource.HUB),
        (FAR, {}, CredentialSource.NONE),
        (POD, {}, CredentialSource.NONE),
        (LOCAL_POD, {}, CredentialSource.NONE),
        (NODE, {}, CredentialSource.HUB),
        (LOCAL, {"authorization": "Bearer t"}, CredentialSource.OWN),
        (POD, {"authorization": "Bearer t"}, CredentialSource.OWN),
        (NODE, {"authorization": "Bearer t"}, CredentialSource.OWN),
        (LOCAL, {"authorization": "Basic dTpw"}, CredentialSource.OWN),
        (
            LOCAL,
            {"sec-websocket-protocol": f"v5.channel.k8s.io, {WEBSOCKET_BEARER}dG9rZW4"},
            CredentialSource.OWN,
        ),
        (LOCAL, {"sec-websocket-protocol": "v5.channel.k8s.io"}, CredentialSource.HUB),
    ],
)
def test_the_credential_source_of_each_caller(
    peer: Peer, headers: dict[str, str], credential_source: CredentialSource
) -> None:
    assert caller_of(peer, headers.items()).credential_source is credential_source


NAMES = [b"Connection", b"Upgrade", b"Origin", b"Authorization", b"Impersonate-User", b"Impersonate-Extra-a"]
NAMES += [b"Sec-WebSocket-Protocol", b"sec-websocket-key", b"sec-websocket-version", b"Host", b"Accept"]
VALUES = [b"websocket", b"Upgrade", b"Bearer t", f"v1, {WEBSOCKET_BEARER}dG9rZW4".encode(), b"v1", b""]


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES)), max_size=7))
def test_only_the_named_fields_identify_a_caller(fields: list[tuple[bytes, bytes]]) -> None:
    request = http.Request.make("GET", "http://hub/", headers=fields)
    hide(request)

    def found(beginnings: tuple[bytes, ...]) -> Caller | int:
        try:
            return caller_of(LOCAL, headers_of(request, beginnings))
        except StatusError as error:
            return error.code

    assert found(CALLER_FIELDS) == found((b"",))


def test_impersonation_is_detected_in_any_spelling() -> None:
    assert caller_of(LOCAL, [("Impersonate-User", "admin")]).impersonates
    assert caller_of(LOCAL, [("impersonate-extra-scopes", "x")]).impersonates
    assert not caller_of(LOCAL, [("x-impersonate-user", "admin")]).impersonates


def test_the_repr_of_a_caller_hides_its_token() -> None:
    assert "secret" not in repr(Caller(CredentialSource.OWN, "Bearer secret"))


@pytest.mark.parametrize("peer", [LOCAL, FAR, POD, NODE])
@pytest.mark.parametrize(
    "text",
    [
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
        *(
            "\xa0",
            "\x1f",
            "\x85",
            "Bearer t\xa0",
            "Bearer \x1f",
            "Bearer\x00t",
            "Bearer \u0442",
            "\udcc2\udca0",
        ),
    ],
)
def test_a_malformed_authorization_is_401_on_each_listener(peer: Peer, text: str) -> None:
    assert refusal(peer, [("Authorization", text)]) == 401


def test_another_nodes_certificate_is_refused_without_a_token() -> None:
    other = Peer(Listener.TLS, is_loopback=True, is_this_node=False, is_another=True)
    assert refusal(other, []) == 401
    assert caller_of(other, [("Authorization", "Bearer t")]).credential_source is CredentialSource.OWN


def test_two_authorizations_are_refused() -> None:
    assert refusal(LOCAL, [("Authorization", "Bearer a"), ("authorization", "Bearer b")]) == 401


def refusal(peer: Peer, fields: list[tuple[str, str]]) -> int:
    with pytest.raises(StatusError) as caught:
        caller_of(peer, fields)
    return caught.value.code


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        (b"/api/v1/pods?limit=5", b"/api/v1/pods?limit=5"),
        (b"/exec?token=abc&x=1", b"/exec?token=hidden&x=1"),
        (b"/exec?x=1&Access_Token=abc#f", b"/exec?x=1&Access_Token=hidden#f"),
    ],
)
def test_tokens_in_the_query_are_hidden(target: bytes, shown: bytes) -> None:
    assert masked(target) == shown


def jwt(claims: object) -> str:
    parts = (b'{"alg":"RS256"}', json.dumps(claims).encode(), b"signature")
    return "Bearer " + ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


@pytest.mark.parametrize(
    ("authorization", "expiry"),
    [
        (jwt({"exp": 1700000000}), 1700000000.0),
        (jwt({"exp": 17.5, "sub": "x"}), 17.5),
        (jwt({"exp": 0}), 0.0),
        (jwt({"exp": 9}).replace("Bearer", "bearer"), 9.0),
        (jwt({}), None),
        (jwt({"exp": "soon"}), None),
        (jwt({"exp": True}), None),
        (jwt([1]), None),
        (jwt({"exp": 9}).replace("Bearer", "Basic"), None),
        ("Bearer opaque", None),
        ("Bearer a.b.c", None),
        ("Bearer ..", None),
        ("", None),
        (jwt({"exp": 9, "pad": "x" * MAX_TOKEN}), None),
    ],
)
def test_the_expiry_of_a_token_is_read_from_its_exp_claim(authorization: str, expiry: float | None) -> None:
    assert expiry_of(authorization) == expiry


@given(st.text(max_size=50), st.binary(max_size=50))
def test_any_authorization_header_is_parsed_without_an_exception(text: str, claims: bytes) -> None:
    token = f"Bearer a.{base64.urlsafe_b64encode(claims).decode()}.b"
    assert {type(expiry_of(each)) for each in (text, token)} <= {float, type(None)}


def test_a_token_in_the_websocket_subprotocols_is_the_callers() -> None:
    token = WEBSOCKET_BEARER + base64.urlsafe_b64encode(b"secret").decode().rstrip("=")
    headers = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-protocol": f"{token}, v1"}
    assert caller_of(LOCAL, headers.items()) == Caller(CredentialSource.OWN, "Bearer secret")
    both = headers | {"authorization": "Bearer first"}
    assert caller_of(LOCAL, both.items()) == Caller(CredentialSource.OWN, "Bearer first")
    protocol = WEBSOCKET_BEARER + base64.urlsafe_b64encode(b"two words").decode().rstrip("=")
    with refuses(401):
        caller_of(LOCAL, (headers | {"sec-websocket-protocol": f"{protocol}, v1"}).items())
