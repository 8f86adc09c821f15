"""Decides which replays and which edits of intercepted flows are permitted.

The body and most headers of a relayed request may be edited. The facts on which the hub's decision rests (sender and
read) were evaluated before the user saw the request, so edits of them are refused: the hub would filter one request and
send another. The hub itself sets the length of an edited body, or a connection could carry a second request.
"""

from __future__ import annotations

from dataclasses import dataclass

from mitmproxy import http

from addons.requests.caller import CredentialSource
from addons.requests.request_context import RequestContext
from addons.requests.route_decision import RouteKind
from addons.server.limits.request_head import FRAMING, fault_of, fields_fault_of
from kube.errors import bad_request, forbidden
from kube.requests.request_info import LONG_SUBRESOURCES

CALLER = "edgehub caller"
"""Metadata key for the origin of the credentials of a flow's request. Copies and saved flows have it, too."""
TEXT_BODY = "edgehub body"
"""Metadata key: the flow's body is a text of the hub, not the body that was sent."""

_DECISIVE_HEADERS = (
    "user-agent",
    "accept",
    "authorization",
    "proxy-authorization",
    "cookie",
    "host",
    "upgrade",
)
_DECISIVE_PREFIXES = ("impersonate-", "x-remote-", "x-edgehub-", "sec-websocket-")
"""Prefixes of headers. By these and `_DECISIVE_HEADERS` the hub decides about a request, and a server about its sender.
"""


def check_replay(flow: http.HTTPFlow, context: RequestContext | None) -> None:
    """Return if a replay has the credentials of the original request. StatusError with the reason otherwise."""
    if flow.metadata.get(TEXT_BODY):
        raise bad_request("not replayed: the hub has not kept the request's body as it was sent")
    before = flow.metadata.get(CALLER)
    if before is None:
        raise forbidden("not replayed: the sender of this request is unknown")
    now = context.caller.credential_source if context is not None else None
    if now != before:
        texts = {
            CredentialSource.OWN: "a token of its own, which is not kept in copies and files of a flow",
            CredentialSource.HUB: "the node's certificate or as a component of this node, which a replay cannot show",
        }
        raise forbidden(
            f"not replayed: the request was sent with {texts.get(CredentialSource(before), 'no credentials')}"
        )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A request before an edit: the parts by which the hub has decided, which must not change, and the parts that may
    change.
    """

    asked: tuple[object, ...]
    """Method, target and server."""
    decides: tuple[tuple[str, str], ...]
    content: bytes | None
    headers: tuple[tuple[bytes, bytes], ...]

    @staticmethod
    def of(request: http.Request) -> Snapshot:
        data = request.data
        fields = ((name.lower(), value) for name, value in request.headers.items(multi=True))
        return Snapshot(
            (data.method, data.scheme, data.host, data.port, data.authority, data.path, data.http_version),
            tuple(
                field
                for field in fields
                if field[0] in _DECISIVE_HEADERS or field[0].startswith(_DECISIVE_PREFIXES)
            ),
            request.raw_content,
            request.headers.fields,
        )


def check_edit(before: Snapshot, request: http.Request, context: RequestContext | None) -> None:
    """Return if the user's edit of a request is permitted. StatusError 403 with the reason otherwise."""
    now = Snapshot.of(request)
    if now == before:
        return
    if context is None or context.route is None:
        raise forbidden("edit rejected: the hub could not parse the request")
    if context.answerer is not None:
        raise forbidden("edit rejected: the hub answers the original request itself")
    if now.asked != before.asked:
        raise forbidden("edit rejected: method, path and server are fixed by now; send a new request")
    if now.decides != before.decides:
        names = (*_DECISIVE_HEADERS, *(f"{name}…" for name in _DECISIVE_PREFIXES))
        raise forbidden(f"edit rejected: the hub has routed the request by {', '.join(names)}")
    _frame(request)
    head = request.data
    if (fault := fault_of(head.method, head.path, head.authority, head.headers.fields)) is not None:
        raise forbidden(f"edit rejected: {fault.message}")


def check_answer(before: http.Response, response: http.Response, context: RequestContext | None) -> None:
    """Return if the user's edit of an answer is permitted. StatusError 403 with the reason otherwise."""
    if response.data == before.data:
        return
    if not may_edit_answer(context):
        raise forbidden("edit rejected: the node relies on the hub's own answers")
    if not 200 <= response.status_code < 600 or not response.reason.isprintable():
        raise forbidden("edit rejected: a status is between 200 and 599, and its reason one line")
    _frame(response)
    if (fault := fields_fault_of(response.headers.fields)) is not None:
        raise forbidden(f"edit rejected: {fault.message}")


def _frame(message: http.Message) -> None:
    """Set the body's length, whatever headers the user has written."""
    fields = tuple(field for field in message.headers.fields if field[0].lower() not in FRAMING)
    size = len(message.raw_content or b"")
    message.headers.fields = (*fields, (b"Content-Length", b"%d" % size))


def may_edit_answer(context: RequestContext | None) -> bool:
    """Whether a user may edit an answer: it was relayed, and is not a long-running stream.

    The hub's own answers cannot be edited, because the node relies on them.
    """
    return (
        context is not None
        and context.route is not None
        and context.answerer is None
        and context.info.subresource not in LONG_SUBRESOURCES
        and context.route.kind in (RouteKind.RELAY, RouteKind.CACHED_RELAY)
    )
