"""Keeps credentials out of flows, which mitmproxy shows in its interfaces and writes to files.

`hide` takes them off a request as it comes in. `with_credentials` makes the request as it is to be sent; the layers in
`addons.proxy.http.http_connections` call it at the last moment. A request that is sent without that call is anonymous.
"""

from __future__ import annotations

import copy
import dataclasses
import re
from weakref import WeakKeyDictionary

from mitmproxy import http

from addons.requests.caller import WEBSOCKET_BEARER

type Fields = tuple[tuple[bytes, bytes], ...]

ALWAYS = frozenset({b"authorization", b"proxy-authorization", b"cookie"})
PROTOCOL = b"sec-websocket-protocol"
"""A credential where it offers one as a subprotocol, which is what browsers can do."""
_TOKEN_IN_QUERY = re.compile(rb"(?<=[?&])(access_token|token)=[^&#]+", re.IGNORECASE)


@dataclasses.dataclass(frozen=True, slots=True)
class Hidden:
    """What a request carries beside what its flow shows."""

    fields: Fields = ()
    path: bytes | None = None
    """The target with its tokens; None where the flow has it whole."""


_hidden: WeakKeyDictionary[http.Request, Hidden] = WeakKeyDictionary()


def hide(request: http.Request) -> None:
    """Take credentials out of the headers, and mask tokens in the target."""
    fields = tuple(each for each in request.headers.fields if _is_secret(*each))
    masked = _TOKEN_IN_QUERY.sub(rb"\1=hidden", request.data.path)
    path = request.data.path if masked != request.data.path else None
    if not fields and path is None:
        return
    _hidden[request] = Hidden(fields, path)
    request.data.path = masked
    request.headers.fields = tuple(each for each in request.headers.fields if not _is_secret(*each))


def lend(request: http.Request, bearer: str) -> None:
    """Have the request sent with this Authorization, and with none of its sender's."""
    others = tuple(each for each in _of(request).fields if each[0].lower() != b"authorization")
    fields = (*others, (b"Authorization", bearer.encode())) if bearer else others
    _hidden[request] = dataclasses.replace(_of(request), fields=fields)


def drop(request: http.Request) -> None:
    """Send the request as its flow shows it."""
    _hidden.pop(request, None)


def headers_of(request: http.Request) -> list[tuple[str, str]]:
    """All header fields, hidden ones too, as text in which other bytes than UTF-8's are surrogates."""
    hidden = http.Headers(_of(request).fields)
    return [*request.headers.items(multi=True), *hidden.items(multi=True)]


def path_of(request: http.Request) -> bytes:
    """The request's target as it was on the wire."""
    path = _of(request).path
    return request.data.path if path is None else path


def with_credentials(request: http.Request) -> http.Request:
    """The request as it is to be sent; itself where nothing of it is hidden."""
    hidden = _hidden.get(request)
    if hidden is None:
        return request
    sent = copy.copy(request)
    headers = http.Headers((*request.headers.fields, *hidden.fields))
    sent.data = dataclasses.replace(request.data, headers=headers, path=path_of(request))
    return sent


def _of(request: http.Request) -> Hidden:
    return _hidden.get(request, Hidden())


def _is_secret(name: bytes, value: bytes) -> bool:
    lower = name.lower()
    return lower in ALWAYS or (lower == PROTOCOL and WEBSOCKET_BEARER.encode() in value)
