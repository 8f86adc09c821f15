"""The caller of a request, the credentials that it may travel with, and their expiry.

Pure: from the listener and the headers.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

import orjson

from kube.bounds import reached
from kube.errors import unauthorized
from kube.json_type import Json
from kube.requests.websocket_offer import WEBSOCKET_BEARER, offer_of

AUTHORIZATION = re.compile("[!-~]+ [!-~]+")
"""`scheme SP token` in visible ASCII. Every server and library reads such a text alike."""

MAX_TOKEN = 16 * 1024
"""Characters of a token that are read; a service account's has some 1,200."""

_TOKEN_IN_QUERY = re.compile(rb"(?<=[?&])(access_token|token)=[^&#]+", re.IGNORECASE)


class Listener(StrEnum):
    """The port by which a request came; the rights of an unauthenticated caller depend on it."""

    PLAIN = "plain"
    TLS = "tls"
    PEER = "peer"
    """For hubs of the other nodes of the pool. `addons.pool` decides which it admits."""


BEARER = "bearer "
"""The prefix of a token's Authorization, in any case. kube-apiserver treats any other as anonymous."""


class CredentialSource(StrEnum):
    """Whose credentials go upstream with a request."""

    HUB = "hub"
    """The hub's certificate or token: for components of this node."""
    OWN = "own"
    """The caller's own credentials alone."""
    NONE = "none"
    """None: an anonymous caller."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller. `authorization` is the caller's own header: never logged, never shown."""

    credential_source: CredentialSource
    authorization: str = field(default="", repr=False)
    impersonates: bool = False


class Peer(NamedTuple):
    """The other end of a client connection."""

    listener: Listener
    is_loopback: bool
    is_this_node: bool
    """It showed a client certificate of this very node, signed by the cluster's CA."""
    is_another: bool = False
    """It presented another client certificate, or one that the cluster's CA has not signed."""


def caller_of(peer: Peer, headers: Iterable[tuple[str, str]]) -> Caller:
    """Decide whose credentials go along: own credentials always win; without them only this node gets the hub's.

    Any sign of own credentials counts: a caller that names another user must not become the hub. StatusError 401 for an
    Authorization that is not `scheme SP token` and for another's certificate, whose key alone could show it to the
    cloud.
    """
    fields = [(name.lower(), value) for name, value in headers]
    impersonates = bool([name for name, _ in fields if name.startswith("impersonate-")])
    sent = [value for name, value in fields if name == "authorization"]
    protocols = [value for name, value in fields if name == "sec-websocket-protocol"]
    if len(sent) > 1 or not all(map(AUTHORIZATION.fullmatch, sent)):
        raise unauthorized("Unauthorized")
    offer = offer_of(fields) if protocols else None
    authorization = sent[0] if sent else (offer.bearer if offer is not None else "")
    if authorization and not AUTHORIZATION.fullmatch(authorization):
        raise unauthorized("Unauthorized")
    if authorization or any(WEBSOCKET_BEARER in value for value in protocols):
        return Caller(CredentialSource.OWN, authorization, impersonates)
    if peer.is_another:
        raise unauthorized(
            "the client certificate is not known as this node's, and the hub cannot pass another one on to the cloud: "
            "send a token, use the plain port (`edgehub kubeconfig` prints how), or ask the cloud itself"
        )
    trusted = peer.is_loopback if peer.listener is Listener.PLAIN else peer.is_this_node
    return Caller(CredentialSource.HUB if trusted else CredentialSource.NONE, "", impersonates)


def masked(target: bytes) -> bytes:
    """A request's target as people may see it: without the tokens in its query."""
    return _TOKEN_IN_QUERY.sub(rb"\1=hidden", target)


def digest_of(authorization: str) -> str:
    """Return the digest of a caller's credentials, which is stored instead of them."""
    return hashlib.sha256(authorization.encode(errors="surrogateescape")).hexdigest()


def expiry_of(authorization: str) -> float | None:
    """The `exp` of a bearer JWT (RFC 7519, section 4.1.4), in seconds since the epoch; None for other credentials.

    Read without verifying the token, so it may only ever shorten a trust.
    """
    expiry = claims_of(authorization).get("exp")
    if isinstance(expiry, bool) or not isinstance(expiry, int | float) or not math.isfinite(expiry):
        return None
    return float(expiry)


def claims_of(authorization: str) -> Json:
    """The claims of a bearer JWT, none of them verified; none for other credentials."""
    scheme, _, token = authorization.partition(" ")
    if len(token) > MAX_TOKEN:
        reached("token")
    parts = token.split(".") if len(token) <= MAX_TOKEN else []
    if scheme.lower() != "bearer" or len(parts) != 3:
        return {}
    try:
        claims = orjson.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return {}
    return claims if isinstance(claims, dict) else {}
