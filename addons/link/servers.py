"""The servers of the cloud: parsed from the operator's options, and the keys of the connections to them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from addons.link.uplinks.uplink import Uplink
from addons.requests.caller import BEARER, CredentialSource, digest_of
from kube.bounds import Recent, reached
from kube.http.proxies import Proxy

MAX_RELAYS = 10
"""Maximum relays of a hub: each has a task that probes it."""
RELAY = "relay "
"""Prefix of a relay's name; no node's name can have it."""
MAX_OWN_PARTITIONS = 256
"""Maximum tokens with a connection of their own: more than a node has pods. The least recently used one loses its
connection.
"""
SHARED_PARTITIONS = 16
"""Number of partitions shared by tokens that no server has accepted yet, so that a valid new token seldom shares one
with an invalid token.
"""
NO_PARTITION = ""
"""The partition of requests without a caller's token."""
_PREFIX = re.compile(r"(?:/[\w.~%:@!$&'()*+,;=-]*)*", re.ASCII)
"""Pattern of a path prefix."""
ServerOrder = Literal["round-robin", "priority"]


@dataclass(frozen=True)
class Lender(Proxy):
    """The hub of another node in the pool, through whose link this node may reach the cloud."""

    node: str = ""


@dataclass(frozen=True, slots=True)
class Server:
    """One kube-apiserver, or a load balancer in front of several; or another node's hub, at its peer port."""

    scheme: Literal["http", "https"]
    host: str
    port: int
    node: str = ""
    """Node whose hub this is, or a relay's name; "" for a server of the cloud."""
    lender: Lender | None = None
    """Hub through whose link the server is reached; None for this node's own link."""
    uplink: Uplink | None = None
    """Uplink through which the server is reached; None if the node's routes decide."""
    prefix: str = ""
    """Prefix of every path on this server, as behind a gateway to many clusters."""
    authority: str = field(init=False, repr=False, compare=False)
    """Host and port, as in a request's authority."""
    url: str = field(init=False, repr=False, compare=False)
    """URL of the server, without its link."""
    name: str = field(init=False, repr=False, compare=False)
    """The URL with its link. The key of look-ups, so computed once."""

    def __post_init__(self) -> None:
        host = f"[{self.host}]" if ":" in self.host else self.host
        object.__setattr__(self, "authority", f"{host}:{self.port}")
        object.__setattr__(self, "url", f"{self.scheme}://{self.authority}")
        route = f" over {self.uplink}" if self.uplink is not None else ""
        route = f" via {self.lender.node}" if self.lender is not None else route
        object.__setattr__(self, "name", self.url + route)

    @property
    def is_in_cloud(self) -> bool:
        """Whether this is a kube-apiserver or a relay, reached by the link to the cloud, not another node's hub."""
        return not self.node or self.node.startswith(RELAY)

    def __str__(self) -> str:
        return self.name


def parse_server(text: str) -> Server:
    """Parse `https://host[:port][/prefix]`. ValueError for anything else."""
    try:
        parts = urlsplit(text.strip())
        port = parts.port
    except ValueError as error:
        raise ValueError(f"server {text!r}: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"server {text!r} is not of the form https://host:port")
    if parts.query or parts.fragment or parts.username or not _PREFIX.fullmatch(parts.path):
        raise ValueError(f"server {text!r} has more than scheme, host, port and a path prefix")
    scheme: Literal["http", "https"] = "https" if parts.scheme == "https" else "http"
    prefix = parts.path.rstrip("/")
    return Server(scheme, parts.hostname, port or (443 if scheme == "https" else 80), prefix=prefix)


def parse_relays(text: str) -> tuple[Server, ...]:
    """Parse the relays in `https://host:port,…`. ValueError for anything else. Their `node` is a name that no node can
    have."""
    relays = tuple(dict.fromkeys(parse_server(entry) for entry in text.split(",") if entry.strip()))
    for relay in relays:
        if relay.scheme != "https" or relay.prefix:
            raise ValueError(f"relay {relay} is not of the form https://host:port")
    if len(relays) > MAX_RELAYS:
        reached("relays")
        raise ValueError(f"there are {len(relays)} relays, more than {MAX_RELAYS}")
    return tuple(
        Server("https", relay.host, relay.port, f"{RELAY}{relay.host}:{relay.port}") for relay in relays
    )


class PoolKey(NamedTuple):
    """The key of a connection: requests with different keys never share one.

    kube-apiserver attributes each request on a connection with the hub's certificate to the hub, so a request with a
    caller's token must use another connection. The partition separates callers with different tokens
    (`PoolPartitions`), and the successive certificates of the hub (`addons.link.tls`).
    """

    server: Server
    credential_source: CredentialSource
    partition: str


class PoolPartitions:
    """Assigns callers with tokens of their own to connections. Tokens are stored as digests.

    kube-apiserver closes a connection (GOAWAY) on which it received an invalid token, which disturbs all requests
    there. So an accepted token gets a connection of its own. All other tokens share a few: otherwise a caller could
    open a thousand connections with a thousand invented tokens.
    """

    def __init__(self) -> None:
        self._accepted: Recent[str, None] = Recent(MAX_OWN_PARTITIONS, "lanes of tokens")

    def partition(self, authorization: str) -> str:
        """Return the partition of a request by its Authorization. Requests of one partition share connections."""
        digest = _digest(authorization)
        return digest if digest in self._accepted else f"shared {int(digest, 16) % SHARED_PARTITIONS}"

    def answered(self, authorization: str, status: int) -> None:
        """Record the status of an answer to a token. Success and 403 mean that the server accepted the token.

        Any other status proves nothing, because a server may refuse a request before it checks the token. Schemes other
        than Bearer are ignored: kube-apiserver treats them as anonymous.
        """
        if not authorization.lower().startswith(BEARER):
            return
        if status == 401:
            self._accepted.pop(_digest(authorization), None)
        elif status < 300 or status == 403:
            self._accepted[_digest(authorization)] = None


def _digest(authorization: str) -> str:
    scheme, _, token = authorization.partition(" ")
    return digest_of(f"{scheme.lower()} {token}")
