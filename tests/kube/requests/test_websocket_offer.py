"""The subprotocols of a handshake, and refused handshakes; `tests/hub/test_websocket_watches.py` compares with a real
server."""

from __future__ import annotations

import base64

import pytest

from kube.requests.websocket_offer import WEBSOCKET_BEARER, offer_of
from tests.addons.support.refusals import refuses

OFFER = {
    "Connection": "keep-alive, Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
    "Origin": "http://127.0.0.1:10261",
}
PROTOCOL = "Sec-WebSocket-Protocol"


def token(text: bytes) -> str:
    return WEBSOCKET_BEARER + base64.urlsafe_b64encode(text).decode().rstrip("=")


@pytest.mark.parametrize(
    "changed", [{"Upgrade": "h2c"}, {"Upgrade": ""}, {"Connection": "keep-alive"}, {"Upgrade": "SPDY/3.1"}]
)
def test_a_request_without_upgrade_is_no_offer(changed: dict[str, str]) -> None:
    assert offer_of((OFFER | changed).items()) is None


@pytest.mark.parametrize("protocol", ["", "v4.channel.k8s.io"])
def test_an_offer_is_accepted_with_its_only_subprotocol(protocol: str) -> None:
    """Key and accept value are from RFC 6455, 1.3."""
    offer = offer_of((OFFER | {PROTOCOL: protocol}).items())
    assert offer is not None
    assert offer.switched() == {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Accept": "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=",
        **({PROTOCOL: protocol} if protocol else {}),
    }


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"Sec-WebSocket-Key": ""}, 400),
        ({"Sec-WebSocket-Version": "8"}, 400),
        ({PROTOCOL: "a, b"}, 400),
        ({"Origin": ""}, 403),
        ({"Origin": "null"}, 403),
    ],
)
def test_an_offer_that_kube_apiserver_refuses_is_refused(changed: dict[str, str], code: int) -> None:
    offer = offer_of((OFFER | changed).items())
    assert offer is not None
    with refuses(code):
        offer.switched()


def test_a_token_in_the_subprotocols_is_read_and_not_echoed() -> None:
    offer = offer_of((OFFER | {PROTOCOL: f"{token(b'secret')}, v1"}).items())
    assert offer is not None
    assert offer.bearer == "Bearer secret"
    assert offer.switched()[PROTOCOL] == "v1"


@pytest.mark.parametrize(
    "protocols",
    [
        token(b"alone"),
        f"{token(b'a')}, {token(b'b')}, v1",
        f"{WEBSOCKET_BEARER}!!!, v1",
        f"{WEBSOCKET_BEARER}, v1",
        f"{token(bytes([255]))}, v1",
    ],
)
def test_a_malformed_token_in_the_subprotocols_is_401(protocols: str) -> None:
    offer = offer_of((OFFER | {PROTOCOL: protocols}).items())
    assert offer is not None
    with refuses(401):
        offer.bearer  # noqa: B018 - it is asked for
