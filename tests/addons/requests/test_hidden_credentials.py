"""Credentials are on the wire, and never in what mitmproxy shows or saves of a flow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mitmproxy import http
from mitmproxy.test import tflow, tutils

from addons.requests.caller import WEBSOCKET_BEARER
from addons.requests.hidden_credentials import (
    headers_of,
    hide,
    lend,
    path_of,
    redirect,
    sent_fields,
    with_credentials,
)

SECRET = b"very-secret"


def request(*fields: tuple[bytes, bytes], path: bytes = b"/api") -> http.Request:
    return tutils.treq(path=path, headers=http.Headers([(b"Accept", b"a/b"), *fields]))


def shown(of: http.Request) -> bytes:
    """All that a flow with this request would write to a file."""
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


def test_a_subprotocol_that_is_no_credential_stays() -> None:
    made = request((b"Sec-WebSocket-Protocol", b"v5.channel.k8s.io"))
    hide(made)
    assert with_credentials(made) is made


def test_a_token_in_the_query() -> None:
    path = b"/api/v1/x?a=1&access_token=very-secret&token=very-secret&tokens=kept"
    made = request(path=path)
    hide(made)
    assert made.data.path == b"/api/v1/x?a=1&access_token=hidden&token=hidden&tokens=kept"
    assert (path_of(made), with_credentials(made).data.path) == (path, path)
    assert SECRET not in shown(made)


def test_the_hubs_own_is_lent_and_taken_back() -> None:
    made = request((b"Cookie", b"a=b"))
    hide(made)
    lend(made, "Bearer hub")
    assert with_credentials(made).headers["Authorization"] == "Bearer hub"
    assert b"hub" not in shown(made)
    lend(made, "")
    assert "Authorization" not in with_credentials(made).headers
    assert with_credentials(made).headers["Cookie"] == "a=b"


def test_a_request_that_is_replayed_has_its_senders_credentials_again() -> None:
    """mitmproxy sends the same request anew; what the hub lent or added the first time is gone."""
    made = request((b"Authorization", SECRET), path=b"/api?token=very-secret")
    hide(made)
    lend(made, "Bearer hub")
    hide(made)
    assert dict(with_credentials(made).headers) == {"Accept": "a/b", "Authorization": "very-secret"}
    assert path_of(made) == b"/api?token=very-secret"
    made.path = "/api/v1/pods"
    assert path_of(made) == b"/api/v1/pods", "a person has edited it"


def test_a_copy_of_a_flow_is_anonymous() -> None:
    """Who sends a flow again in the interface is not its caller."""
    made = request((b"Authorization", SECRET))
    hide(made)
    assert "Authorization" not in with_credentials(made.copy()).headers


@given(st.binary(max_size=60))
def test_values_are_not_altered(value: bytes) -> None:
    made = request((b"Authorization", value))
    hide(made)
    assert (b"Authorization", value) in with_credentials(made).headers.fields
    assert dict(headers_of(made))["Authorization"].encode("utf-8", "surrogateescape") == value


def test_who_is_asked_in_the_place_of_another_sees_no_credentials() -> None:
    asked = request((b"Authorization", SECRET), (b"Cookie", SECRET), path=b"/a?token=" + SECRET)
    hide(asked)
    redirect(asked, "/b?c=d")
    sent = with_credentials(asked)
    assert (sent.path, SECRET in repr(sent.data).encode()) == ("/b?c=d", False)
