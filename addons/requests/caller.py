"""The caller of a request, the credentials that are sent upstream for it, and their expiry.

Pure functions of the listener and the headers.
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
"""Pattern of an Authorization header: `scheme SP token` in visible ASCII, which every server and library parses
alike.
"""

CALLER_FIELDS = (b"authorization", b"connection", b"impersonate-", b"origin", b"sec-websocket-", b"upgrade")
"""The beginnings of the names of all header fields that `caller_of` reads, in lower case."""

MAX_TOKEN = 16 * 1024
"""Maximum characters of a token that the hub parses; a service account's token has some 1,200."""

_TOKEN_IN_QUERY = re.compile(rb"(?<=[?&])(access_token|token)=[^&#]+", re.IGNORECASE)


class Listener(StrEnum):
    """The port that received a request. The rights of an unauthenticated caller depend on it."""

    PLAIN = "plain"
    TLS = "tls"
    PEER = "peer"
    """For hubs of other nodes in the pool; `addons.pool` decides which of them are admitted."""


BEARER = "bearer "
"""Lower-case prefix of an Authorization with a token. kube-apiserver treats any other scheme as anonymous."""


class CredentialSource(StrEnum):
    """The origin of the credentials that are sent upstream with a request."""

    HUB = "hub"
    """The hub's certificate or token, for components of this node."""
    OWN = "own"
    """Only the caller's own credentials."""
    NONE = "none"
    """No credentials: the caller is anonymous."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request. `authorization` is the caller's own header, never logged or shown."""

    credential_source: CredentialSource
    authorization: str = field(default="", repr=False)
    impersonates: bool = False


class Peer(NamedTuple):
    """Facts about the other end of a client connection."""

    listener: Listener
    is_loopback: bool
    is_this_node: bool
    """Whether the client presented a certificate of this node, signed by the cluster's CA."""
    is_another: bool = False
    """Whether the client presented any other certificate, or one that the cluster's CA has not signed."""


def caller_of(peer: Peer, headers: Iterable[tuple[str, str]]) -> Caller:
    """Decide which credentials are sent upstream: the caller's own if it has any, else the hub's for callers of this
    node.

    A caller with any credentials, or that impersonates another user, never becomes the hub. StatusError 401 for an
    Authorization that is not `scheme SP token`, and for another node's certificate: the hub cannot present that to the
    cloud without its key.
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
    if authorization or (protocols and any(WEBSOCKET_BEARER in value for value in protocols)):
        return Caller(CredentialSource.OWN, authorization, impersonates)
    if peer.is_another:
        raise unauthorized(
            "the client certificate is not known as this node's, and the hub cannot pass another one on to the cloud: "
            "send a token, use the plain port (`edgehub kubeconfig` prints how), or ask the cloud itself"
        )
    trusted = peer.is_loopback if peer.listener is Listener.PLAIN else peer.is_this_node
    return Caller(CredentialSource.HUB if trusted else CredentialSource.NONE, "", impersonates)


def masked(target: bytes) -> bytes:
    """Return a request target with the tokens in its query masked, for logs and interfaces."""
    return _TOKEN_IN_QUERY.sub(rb"\1=hidden", target) if b"=" in target else target


def digest_of(authorization: str) -> str:
    """Return the digest of a caller's credentials, which is stored instead of them."""
    return hashlib.sha256(authorization.encode(errors="surrogateescape")).hexdigest()


def expiry_of(authorization: str) -> float | None:
    """Return the `exp` claim of a bearer JWT (RFC 7519, 4.1.4), in seconds since the epoch; None for other credentials.

    The signature is not verified, so callers may use the claim only to shorten their trust.
    """
    expiry = claims_of(authorization).get("exp")
    if isinstance(expiry, bool) or not isinstance(expiry, int | float) or not math.isfinite(expiry):
        return None
    return float(expiry)


def claims_of(authorization: str) -> Json:
    """Return the claims of a bearer JWT without verifying its signature; an empty dict for other credentials."""
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
