"""What browsers send for a web page is refused, and what Kubernetes' clients send is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addons.requests.browser_check import OwnAddress, refuse_web_pages
from kube.errors import StatusError

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
    """The status of the refusal; 0 where the request passes."""
    try:
        refuse_web_pages(OWN, authority, headers)
    except StatusError as error:
        return error.code
    return 0


@pytest.mark.parametrize("headers", PASSES.values(), ids=PASSES)
def test_clients_of_the_api_pass(headers: list[tuple[str, str]]) -> None:
    assert refusal(headers) == 0


@pytest.mark.parametrize("headers", REFUSED.values(), ids=REFUSED)
def test_web_pages_are_refused(headers: list[tuple[str, str]]) -> None:
    assert refusal(headers) == 403


@pytest.mark.parametrize(("authority", "code"), [("127.0.0.1:10261", 0), ("evil.example", 403)])
def test_the_authority_of_a_target_counts_as_well(authority: str, code: int) -> None:
    assert refusal([("Host", "127.0.0.1:10261")], authority) == code


@given(st.text(max_size=40).filter(lambda text: "localhost" not in text.lower()))
def test_no_name_passes_that_is_not_an_address(name: str) -> None:
    """The owner of a web page decides what its own DNS names resolve to."""
    with pytest.raises(StatusError):
        refuse_web_pages(OwnAddress("127.0.0.1", 1), "", [("Host", f"x{name}")])
