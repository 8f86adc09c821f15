"""Web pages are refused, and credentials are hidden from users who look at a flow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mitmproxy import http
from mitmproxy.test import tflow, tutils
from multidict import CIMultiDict

from addons.requests.hidden_credentials import (
    headers_of,
    hide,
    lend,
    path_of,
    redirect,
    sent_fields,
    with_credentials,
)
from kube.errors import StatusError
from kube.http.browser_check import OwnAddress, refuse_web_pages
from kube.requests.websocket_offer import WEBSOCKET_BEARER

OWN = OwnAddress("10.0.0.5", 10261, frozenset({"hub.example"}))

PASSES: dict[str, list[tuple[str, str]]] = {
    "a component": [("Host", "127.0.0.1:10261"), ("User-Agent", "kubelet/v1.36")],
    "by name": [("Host", "localhost:10261")],
    "in capitals": [("host", "LOCALHOST:10261")],
    "IPv6": [("Host", "[::1]:10261")],
    "all of loopback": [("Host", "127.1.2.3:10261")],
    "the address that it reached": [("Host", "10.0.0.5:10261")],
    "a name of the option": [("Host", "Hub.example:10261")],
    "without a port": [("Host", "127.0.0.1")],
    "through a forwarded port": [("Host", "127.0.0.1:9267")],
    "no Host at all": [("User-Agent", "probe")],
    "a page of the hub's own": [("Host", "127.0.0.1:10261"), ("Origin", "http://127.0.0.1:10261")],
    "typed by a person": [("Host", "127.0.0.1:10261"), ("Sec-Fetch-Site", "none")],
}

REFUSED: dict[str, list[tuple[str, str]]] = {
    "DNS rebinding": [("Host", "evil.example:10261")],
    "a name that begins like an address": [("Host", "127.0.0.1.evil.example")],
    "an address as a user": [("Host", "127.0.0.1@evil.example")],
    "another address": [("Host", "10.0.0.6:10261")],
    "a second Host": [("Host", "127.0.0.1:10261"), ("Host", "evil.example")],
    "an empty Host": [("Host", "")],
    "a dot at the end": [("Host", "localhost.")],
    "the address of all": [("Host", "0.0.0.0:10261")],
    "the address of all, IPv6": [("Host", "[::]")],
    "an address that only a browser reads": [("Host", "127.1")],
    "an address as a number": [("Host", "2130706433")],
    "two names": [("Host", "127.0.0.1,evil.example")],
    "a port that is none": [("Host", "127.0.0.1:x")],
    "a name behind brackets": [("Host", "[::1].evil.example")],
    "a fragment": [("Host", "evil.example#127.0.0.1")],
    "brackets": [("Host", "[::1")],
    "a WebSocket of a page": [
        ("Host", "127.0.0.1:10261"),
        ("Origin", "https://evil.example"),
        ("Upgrade", "websocket"),
    ],
    "a page without an origin": [("Host", "127.0.0.1:10261"), ("Origin", "null")],
    "another program's page on this node": [("Host", "127.0.0.1:10261"), ("Origin", "http://127.0.0.1:3000")],
    "an origin that cannot be read": [("Host", "127.0.0.1:10261"), ("Origin", "http://127.0.0.1:x")],
    "an empty origin": [("Host", "127.0.0.1:10261"), ("Origin", "")],
    "an origin that begins like ours": [
        ("Host", "127.0.0.1:10261"),
        ("Origin", "http://127.0.0.1:10261.evil.example"),
    ],
    "two sites": [("Host", "127.0.0.1:10261"), ("Sec-Fetch-Site", "none, cross-site")],
    "an image of a page": [("Host", "127.0.0.1:10261"), ("Sec-Fetch-Site", "cross-site")],
    "the same host, another port": [("Host", "localhost:10261"), ("Sec-Fetch-Site", "same-site")],
}


def refusal(headers: list[tuple[str, str]], authority: str = "") -> int:
    """Return the status of the refusal; 0 if the request is accepted."""
    try:
        refuse_web_pages(OWN, authority, lambda name: CIMultiDict(headers).getall(name, []))
    except StatusError as error:
        return error.code
    return 0


@pytest.mark.parametrize("headers", PASSES.values(), ids=PASSES)
def test_clients_of_the_api_are_accepted(headers: list[tuple[str, str]]) -> None:
    assert refusal(headers) == 0


@pytest.mark.parametrize("headers", REFUSED.values(), ids=REFUSED)
def test_web_pages_are_refused(headers: list[tuple[str, str]]) -> None:
    assert refusal(headers) == 403


@pytest.mark.parametrize(("authority", "code"), [("127.0.0.1:10261", 0), ("evil.example", 403)])
def test_the_authority_of_an_absolute_target_is_checked_too(authority: str, code: int) -> None:
    assert refusal([("Host", "127.0.0.1:10261")], authority) == code


@given(st.text(max_size=40).filter(lambda text: "localhost" not in text.lower()))
def test_a_host_that_is_not_an_ip_address_is_refused(name: str) -> None:
    """The owner of a web page controls what its own DNS names resolve to."""
    assert refusal([("Host", f"x{name}")]) == 403


SECRET = b"very-secret"


def request(*fields: tuple[bytes, bytes], path: bytes = b"/api") -> http.Request:
    return tutils.treq(path=path, headers=http.Headers([(b"Accept", b"a/b"), *fields]))


def shown(of: http.Request) -> bytes:
    """Return all bytes that a flow with this request would write to a file."""
    return repr(tflow.tflow(req=of).get_state()).encode()


@pytest.mark.parametrize(
    "field",
    [
        (b"Authorization", b"Bearer " + SECRET),
        (b"AUTHORIZATION", SECRET),
        (b"Proxy-Authorization", b"Basic " + SECRET),
        (b"Cookie", b"session=" + SECRET),
        (b"Sec-WebSocket-Protocol", b"v4.channel.k8s.io, " + WEBSOCKET_BEARER.encode() + SECRET),
    ],
)
def test_a_credential_is_sent_and_not_shown(field: tuple[bytes, bytes]) -> None:
    made = request(field)
    before = sorted(made.headers.fields)
    hide(made)
    assert SECRET not in shown(made)
    assert sorted(with_credentials(made).headers.fields) == sorted(sent_fields(made)) == before
    assert SECRET not in shown(made), "what is sent is another object"
    assert (field[0].decode(), field[1].decode()) in headers_of(made)
    hide(made)
    assert sorted(with_credentials(made).headers.fields) == before


def test_a_subprotocol_without_a_credential_is_unchanged() -> None:
    made = request((b"Sec-WebSocket-Protocol", b"v5.channel.k8s.io"))
    hide(made)
    assert with_credentials(made) is made


def test_a_token_in_the_query_is_hidden() -> None:
    path = b"/api/v1/x?a=1&access_token=very-secret&token=very-secret&tokens=kept"
    made = request(path=path)
    hide(made)
    assert made.data.path == b"/api/v1/x?a=1&access_token=hidden&token=hidden&tokens=kept"
    assert (path_of(made), with_credentials(made).data.path) == (path, path)
    assert SECRET not in shown(made)


def test_the_hubs_own_credentials_are_added_and_removed() -> None:
    made = request((b"Cookie", b"a=b"))
    hide(made)
    lend(made, "Bearer hub")
    assert with_credentials(made).headers["Authorization"] == "Bearer hub"
    assert b"hub" not in shown(made)
    lend(made, "")
    assert "Authorization" not in with_credentials(made).headers
    assert with_credentials(made).headers["Cookie"] == "a=b"


def test_a_replayed_request_has_its_senders_credentials() -> None:
    """mitmproxy sends the same request again; what the hub added the first time is removed."""
    made = request((b"Authorization", SECRET), path=b"/api?token=very-secret")
    hide(made)
    lend(made, "Bearer hub")
    hide(made)
    assert dict(with_credentials(made).headers) == {"Accept": "a/b", "Authorization": "very-secret"}
    assert path_of(made) == b"/api?token=very-secret"
    made.path = "/api/v1/pods"
    assert path_of(made) == b"/api/v1/pods", "a person has edited it"


def test_a_copy_of_a_flow_is_anonymous() -> None:
    """A user who replays a flow in the interface is not its caller."""
    made = request((b"Authorization", SECRET))
    hide(made)
    assert "Authorization" not in with_credentials(made.copy()).headers


@given(st.binary(max_size=60))
def test_header_values_are_not_altered(value: bytes) -> None:
    made = request((b"Authorization", value))
    hide(made)
    assert (b"Authorization", value) in with_credentials(made).headers.fields
    assert dict(headers_of(made))["Authorization"].encode("utf-8", "surrogateescape") == value


def test_a_redirected_request_carries_no_credentials() -> None:
    asked = request((b"Authorization", SECRET), (b"Cookie", SECRET), path=b"/a?token=" + SECRET)
    hide(asked)
    redirect(asked, "/b?c=d")
    sent = with_credentials(asked)
    assert (sent.path, SECRET in repr(sent.data).encode()) == ("/b?c=d", False)
