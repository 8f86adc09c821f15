"""Keeps credentials out of flows, which mitmproxy shows and saves.

`hide` takes credentials off a request as it comes in. `sent_fields` and `path_of` return the request with them;
`addons.server.relay` asks for it at the last moment. A request that is sent without them is anonymous.
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
"""A credential offered as a subprotocol, which is the way of browsers."""


@dataclasses.dataclass(frozen=True, slots=True)
class Hidden:
    """The parts of a request that its flow does not show."""

    own: HiddenFields = ()
    """The credentials that its sender gave it. mitmproxy may replay the request."""
    lent: HiddenFields | None = None
    """Sent in place of `own`; None where `own` is sent."""
    path: bytes | None = None
    """The target with its tokens; None where the flow has all of it."""

    @property
    def sent(self) -> HiddenFields:
        return self.own if self.lent is None else self.lent


NOTHING = Hidden()
_hidden: WeakKeyDictionary[http.Request, Hidden] = WeakKeyDictionary()


def hide(request: http.Request) -> None:
    """Take credentials out of the headers, and mask tokens in the target.

    A request that mitmproxy replays has the credentials again that its sender gave it.
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
    """Send the request with this Authorization, and with none of its sender's."""
    hidden = _of(request)
    others = tuple(field for field in hidden.own if field[0].lower() != b"authorization")
    lent = (*others, (b"Authorization", bearer.encode())) if bearer else others
    _hidden[request] = dataclasses.replace(hidden, lent=lent)


def redirect(request: http.Request, target: str) -> None:
    """Send the request with this target, and without credentials: it goes to another server than its sender called."""
    request.data.path = target.encode()
    _hidden[request] = Hidden(_of(request).own, lent=())


def headers_of(request: http.Request) -> list[tuple[str, str]]:
    """The header fields that its sender gave it, hidden ones too, as text.

    Other bytes than UTF-8's are surrogates.
    """
    return [
        (name.decode("utf-8", "surrogateescape"), value.decode("utf-8", "surrogateescape"))
        for name, value in (*request.headers.fields, *_of(request).own)
    ]


def path_of(request: http.Request) -> bytes:
    """The request's target as it was on the wire; as the flow shows it where a person has edited that."""
    path = _of(request).path
    return request.data.path if path is None or masked(path) != request.data.path else path


def sent_fields(request: http.Request) -> HiddenFields:
    """All header fields as they are to be sent."""
    hidden = _hidden.get(request)
    return request.headers.fields if hidden is None else (*request.headers.fields, *hidden.sent)


def with_credentials(request: http.Request) -> http.Request:
    """The request as it is to be sent; itself where nothing of it is hidden."""
    hidden = _hidden.get(request)
    if hidden is None:
        return request
    sent = copy.copy(request)
    headers = type(request.headers)((*request.headers.fields, *hidden.sent))
    sent.data = copy.copy(request.data)
    sent.data.headers, sent.data.path = headers, path_of(request)
    return sent


def _of(request: http.Request) -> Hidden:
    return _hidden.get(request, NOTHING)


def _is_secret(name: bytes, value: bytes) -> bool:
    lower = name.lower()
    return lower in ALWAYS or (lower == PROTOCOL and WEBSOCKET_BEARER.encode() in value)
