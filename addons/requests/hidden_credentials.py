"""Removes credentials from flows, which mitmproxy shows and saves.

`hide` removes the credentials from an incoming request. `sent_fields` and `path_of` return the request with them;
`addons.server.relay` calls them just before it sends. A request sent without them is anonymous.
"""

from __future__ import annotations

import copy
import dataclasses
from weakref import WeakKeyDictionary

from mitmproxy import http

from addons.requests.caller import masked
from kube.requests.websocket_offer import WEBSOCKET_BEARER

type HiddenFields = tuple[tuple[bytes, bytes], ...]

ALWAYS = frozenset({b"authorization", b"proxy-authorization", b"cookie"})
PROTOCOL = b"sec-websocket-protocol"
"""Header whose value may contain a token: browsers send it as a WebSocket subprotocol."""


@dataclasses.dataclass(frozen=True, slots=True)
class Hidden:
    """The parts of a request that its flow does not show."""

    own: HiddenFields = ()
    """Credentials from the client; kept for a replay by mitmproxy."""
    lent: HiddenFields | None = None
    """Credentials sent instead of `own`; None if `own` is sent."""
    path: bytes | None = None
    """The target with its tokens; None if the flow shows the complete target."""

    @property
    def sent(self) -> HiddenFields:
        return self.own if self.lent is None else self.lent


NOTHING_HIDDEN = Hidden()
_hidden: WeakKeyDictionary[http.Request, Hidden] = WeakKeyDictionary()


def hide(request: http.Request) -> None:
    """Remove the credentials from the headers, and mask the tokens in the target.

    A request that mitmproxy replays gets its client's credentials back.
    """
    before = _hidden.get(request)
    own = tuple([field for field in request.headers.fields if _is_secret(*field)])
    shown = masked(request.data.path)
    path = request.data.path if shown != request.data.path else None
    if before is None and not own and path is None:
        return
    if before is not None:
        own, path = own or before.own, path or before.path
    _hidden[request] = Hidden(own, path=path)
    request.data.path = shown
    request.headers.fields = tuple(field for field in request.headers.fields if not _is_secret(*field))


def lend(request: http.Request, bearer: str) -> None:
    """Replace the client's Authorization by this one; send none if `bearer` is empty."""
    hidden = _of(request)
    others = tuple(field for field in hidden.own if field[0].lower() != b"authorization")
    lent = (*others, (b"Authorization", bearer.encode())) if bearer else others
    _hidden[request] = dataclasses.replace(hidden, lent=lent)


def redirect(request: http.Request, target: str) -> None:
    """Replace the target, and send no credentials: the request goes to another server than the client addressed."""
    request.data.path = target.encode()
    _hidden[request] = Hidden(_of(request).own, lent=())


def headers_of(request: http.Request, beginnings: tuple[bytes, ...] = (b"",)) -> list[tuple[str, str]]:
    """Return the client's header fields as text, hidden ones included, whose names in lower case begin with one of
    `beginnings`.

    Bytes that are not UTF-8 become surrogates.
    """
    return [
        (name.decode("utf-8", "surrogateescape"), value.decode("utf-8", "surrogateescape"))
        for name, value in (*request.headers.fields, *_of(request).own)
        if name.lower().startswith(beginnings)
    ]


def path_of(request: http.Request) -> bytes:
    """Return the request target as received, or as the flow shows it if a user has edited it."""
    path = _of(request).path
    return request.data.path if path is None or masked(path) != request.data.path else path


def sent_fields(request: http.Request) -> HiddenFields:
    """Return all header fields to send, credentials included."""
    hidden = _hidden.get(request)
    return request.headers.fields if hidden is None else (*request.headers.fields, *hidden.sent)


def with_credentials(request: http.Request) -> http.Request:
    """Return the request as it is sent; `request` itself if nothing is hidden."""
    hidden = _hidden.get(request)
    if hidden is None:
        return request
    sent = copy.copy(request)
    headers = type(request.headers)((*request.headers.fields, *hidden.sent))
    sent.data = copy.copy(request.data)
    sent.data.headers, sent.data.path = headers, path_of(request)
    return sent


def _of(request: http.Request) -> Hidden:
    return _hidden.get(request, NOTHING_HIDDEN)


def _is_secret(name: bytes, value: bytes) -> bool:
    lower = name.lower()
    return lower in ALWAYS or (lower == PROTOCOL and WEBSOCKET_BEARER.encode() in value)
