"""Who sends a request, and whose credentials it may travel with. Pure: from the listener and the headers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

WEBSOCKET_BEARER = "base64url.bearer.authorization.k8s.io."
"""How browsers pass a token when they open a WebSocket: as one of the offered subprotocols."""


class Listener(StrEnum):
    """Where a request came in; what an unauthenticated caller may do depends on it."""

    PLAIN = "plain"
    TLS = "tls"
    INTERNAL = "internal"


class Lending(StrEnum):
    """Whose credentials go upstream with a request."""

    HUB = "hub"
    """The hub's certificate or token: for components of this node."""
    OWN = "own"
    """What the caller sent, and nothing else."""
    NONE = "none"
    """Nothing: an anonymous caller."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks. `authorization` is the caller's own header: never logged, never shown."""

    lending: Lending
    authorization: str = field(default="", repr=False)
    impersonates: bool = False


@dataclass(frozen=True, slots=True)
class Peer:
    """What is known of the other end of a client connection."""

    listener: Listener
    is_loopback: bool
    is_this_node: bool
    """It showed a client certificate of this very node, signed by the cluster's CA."""


def caller_of(peer: Peer, headers: Mapping[str, str]) -> Caller:
    """Decide by DESIGN's table: own credentials always win; without them only this node gets the hub's.

    Any sign of own credentials counts, valid or not: a caller that tries to be somebody else must not become the
    hub. The internal listener's caller is the hub itself, which adds a token where it asks for somebody else.
    """
    authorization = headers.get("authorization", "")
    impersonates = any(name.lower().startswith("impersonate-") for name in headers)
    if authorization or WEBSOCKET_BEARER in headers.get("sec-websocket-protocol", ""):
        return Caller(Lending.OWN, authorization, impersonates)
    trusted = peer.listener is Listener.INTERNAL or (
        peer.is_loopback if peer.listener is Listener.PLAIN else peer.is_this_node
    )
    return Caller(Lending.HUB if trusted else Lending.NONE, "", impersonates)
