"""The servers of the cloud by address: parsed from the operator's text, and the keys of the connections to them."""

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
"""Relays that a hub takes: each is a task that probes it."""
RELAY = "relay "
"""The prefix of a relay's name; no node's name has it."""
MAX_OWN_PARTITIONS = 256
"""Tokens with a connection of their own: more than a node has pods. The least recently used one loses its own."""
SHARED_PARTITIONS = 16
"""Partitions of tokens that no server has accepted yet. A new token that is good seldom meets a bad one there."""
NO_PARTITION = ""
"""The partition of requests that carry no token of the caller."""
_PREFIX = re.compile(r"(?:/[\w.~%:@!$&'()*+,;=-]*)*", re.ASCII)
"""The beginning of paths."""
ServerOrder = Literal["round-robin", "priority"]


@dataclass(frozen=True)
class Lender(Proxy):
    """The hub of another node of the pool, whose link to the cloud this node may use."""

    node: str = ""


@dataclass(frozen=True, slots=True)
class Server:
    """One kube-apiserver, or a load balancer before several; or the hub of another node, by its peer port."""

    scheme: Literal["http", "https"]
    host: str
    port: int
    node: str = ""
    """The node whose hub this is, or a name for a relay; "" for a server of the cloud."""
    lender: Lender | None = None
    """The node whose link leads there; None for this node's own."""
    uplink: Uplink | None = None
    """The uplink to it; None if the routes of the node decide."""
    prefix: str = ""
    """The prefix of each path there, as behind a gateway of many clusters."""
    authority: str = field(init=False, repr=False, compare=False)
    """Host and port, as a request names them."""
    url: str = field(init=False, repr=False, compare=False)
    """The server's own, whichever link leads there."""
    name: str = field(init=False, repr=False, compare=False)
    """The URL, and the link. Each request looks servers up by it."""

    def __post_init__(self) -> None:
        host = f"[{self.host}]" if ":" in self.host else self.host
        object.__setattr__(self, "authority", f"{host}:{self.port}")
        object.__setattr__(self, "url", f"{self.scheme}://{self.authority}")
        route = f" over {self.uplink}" if self.uplink is not None else ""
        route = f" via {self.lender.node}" if self.lender is not None else route
        object.__setattr__(self, "name", self.url + route)

    @property
    def is_in_cloud(self) -> bool:
        """Whether the link to the cloud leads there: to a kube-apiserver or a relay, not to another node's hub."""
        return not self.node or self.node.startswith(RELAY)

    def __str__(self) -> str:
        return self.name


def parse_server(text: str) -> Server:
    """The server of `https://host[:port][/prefix]`; ValueError otherwise."""
    try:
        parts = urlsplit(text.strip())
        port = parts.port
    except ValueError as error:
        raise ValueError(f"server {text!r}: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"server {text!r} is not of the form https://host:port")
    if parts.query or parts.fragment or parts.username or not _PREFIX.fullmatch(parts.path):
        raise ValueError(f"server {text!r} has more than scheme, host, port and the beginning of paths")
    scheme: Literal["http", "https"] = "https" if parts.scheme == "https" else "http"
    prefix = parts.path.rstrip("/")
    return Server(scheme, parts.hostname, port or (443 if scheme == "https" else 80), prefix=prefix)


def parse_relays(text: str) -> tuple[Server, ...]:
    """The relays of `https://host:port,…`; ValueError otherwise. `Server.node` is a name that no node can have."""
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
    """The key by which connections are separate.

    kube-apiserver takes each request on a connection with the hub's certificate for the hub's, so a request with a
    caller's own token must never travel on one. A partition keeps apart callers with tokens of their own
    (`PoolPartitions`), and the certificates that the hub has had one after another
    (`addons.link.tls`).
    """

    server: Server
    credential_source: CredentialSource
    partition: str


class PoolPartitions:
    """Which connections carry the requests of callers with tokens of their own. Remembers tokens by their digest.

    kube-apiserver ends a connection (GOAWAY) on which it saw a bad token, and so disturbs all its requests. An accepted
    token gets a connection of its own. All others share some: with one each, a caller could open a thousand connections
    with a thousand invented tokens.
    """

    def __init__(self) -> None:
        self._accepted: Recent[str, None] = Recent(MAX_OWN_PARTITIONS, "lanes of tokens")

    def partition(self, authorization: str) -> str:
        """The partition of a request with an Authorization header: requests of one partition share connections."""
        digest = _digest(authorization)
        return digest if digest in self._accepted else f"shared {int(digest, 16) % SHARED_PARTITIONS}"

    def answered(self, authorization: str, status: int) -> None:
        """Note a server's answer to a token. Success, and 403, mean that it accepted the token.

        A server may refuse a request before it looks at the token. Another scheme than Bearer proves no user:
        kube-apiserver answers it as anonymous, whatever its content.
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
