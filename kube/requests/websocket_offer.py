"""A WebSocket handshake (RFC 6455): the client's offer, and the head of the response. Pure.

kube-apiserver serves each watch over WebSocket on request. The refusals follow its own (`golang.org/x/net/websocket`,
and `websocket.ProtocolAuthenticator` of k8s.io/apiserver).
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from kube.errors import bad_request, forbidden, unauthorized

WEBSOCKET_BEARER = "base64url.bearer.authorization.k8s.io."
"""The prefix of a subprotocol that carries a token, the only way for browsers to send one with a WebSocket."""
VERSION = "13"


class WebSocketOffer(NamedTuple):
    """A client's offer in its handshake."""

    key: str
    version: str
    protocols: tuple[str, ...]
    """The subprotocols, without those that carry tokens."""
    tokens: tuple[str, ...]
    """The subprotocols that carry tokens, unchanged."""
    origin: str

    def switched(self) -> Mapping[str, str]:
        """The headers of the 101 response. StatusError if kube-apiserver would refuse the WebSocket."""
        if not self.key:
            raise bad_request("mismatch challenge/response: the request has no Sec-WebSocket-Key")
        if self.version != VERSION:
            raise bad_request(f"missing or bad WebSocket Version: it is {VERSION}")
        if not self.origin or not _is_uri(self.origin):
            raise forbidden("a WebSocket is opened with the header Origin")
        if len(self.protocols) > 1:
            raise bad_request("missing or bad WebSocket-Protocol: offer one subprotocol, or none")
        from wsproto.utilities import generate_accept_token  # noqa: PLC0415 - the command line needs none

        chosen = {"Sec-WebSocket-Protocol": self.protocols[0]} if self.protocols else {}
        accepted = generate_accept_token(self.key.encode("utf-8", "surrogateescape")).decode()
        return {
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Accept": accepted,
            **chosen,
        }

    @property
    def bearer(self) -> str:
        """The Authorization header for the token in the subprotocols; "" for none. StatusError 401 for a malformed
        token."""
        if not self.tokens:
            return ""
        encoded = self.tokens[0].removeprefix(WEBSOCKET_BEARER)
        try:
            token = base64.b64decode(encoded + "=" * (-len(encoded) % 4), b"-_", validate=True).decode()
        except ValueError:
            token = ""
        if not token or len(self.tokens) > 1 or not self.protocols:
            raise unauthorized("Unauthorized")
        return f"Bearer {token}"


def offer_of(fields: Iterable[tuple[str, str]]) -> WebSocketOffer | None:
    """Read the offer from the headers of an HTTP/1.1 request; None if they request no WebSocket."""
    values: dict[str, list[str]] = {}
    for name, value in fields:
        values.setdefault(name.lower(), []).append(value)

    def first(name: str) -> str:
        return values.get(name, [""])[0]

    options = "".join(values.get("connection", ())).lower()
    if first("upgrade").lower() != "websocket" or "upgrade" not in options:
        return None
    offered = ",".join(values.get("sec-websocket-protocol", ())).split(",")
    protocols = tuple(filter(None, map(str.strip, offered)))
    return WebSocketOffer(
        key=first("sec-websocket-key"),
        version=first("sec-websocket-version"),
        protocols=tuple(name for name in protocols if not name.startswith(WEBSOCKET_BEARER)),
        tokens=tuple(name for name in protocols if name.startswith(WEBSOCKET_BEARER)),
        origin=first("origin"),
    )


def _is_uri(text: str) -> bool:
    """True if Go's `url.ParseRequestURI` accepts a text: an absolute URI, or a path."""
    try:
        found = urlsplit(text)
    except ValueError:
        return False
    return bool(found.scheme) or text.startswith("/")
