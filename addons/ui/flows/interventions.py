"""Decides what a person may do with a flow: which replays run, and which edits of an intercepted flow hold.

A relay is its sender's own, so its body and headers may be edited. What decides about a request (who sends it, what it
asks for) was decided before a person saw it, so an edit of that is refused: the hub would filter one request, and send
another.
"""

from __future__ import annotations

from dataclasses import dataclass

from mitmproxy import http

from addons.requests.caller import Lending
from addons.requests.request_context import RequestContext
from addons.requests.route_decision import RouteKind
from kube.errors import bad_request, forbidden

CALLER = "edgehub caller"
"""Key of a flow's metadata: whose credentials its request had. Copies and files of flows have it too."""
TEXT_BODY = "edgehub body"
"""Key of a flow's metadata: the flow shows a text of the hub in place of the body that was sent."""

_DECIDES = ("user-agent", "accept", "authorization", "upgrade")
"""Headers on which the hub's decision about a request rests."""


def check_replay(flow: http.HTTPFlow, context: RequestContext | None) -> None:
    """Return where a replay would run as the component that sent the request; StatusError with the reason otherwise."""
    if flow.metadata.get(TEXT_BODY):
        raise bad_request("not replayed: the hub has not kept the request's body as it was sent")
    before = flow.metadata.get(CALLER)
    if before is None:
        raise forbidden("not replayed: the hub does not know who sent this request")
    now = context.caller.lending if context is not None else None
    if now != before:
        words = {
            Lending.OWN: "a token of its own, which is not kept in copies and files of a flow",
            Lending.HUB: "the node's certificate or as a component of this node, which a replay cannot show",
        }
        raise forbidden(
            f"not replayed: the request was sent with {words.get(Lending(before), 'no credentials')}"
        )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A request as the hub decided about it."""

    method: str
    path: str
    target: tuple[str, str, int]
    decides: tuple[tuple[str, ...], ...]
    content: bytes | None
    headers: tuple[tuple[bytes, bytes], ...]

    @staticmethod
    def of(request: http.Request) -> Snapshot:
        return Snapshot(
            request.method,
            request.path,
            (request.scheme, request.host, request.port),
            tuple(tuple(request.headers.get_all(name)) for name in _DECIDES),
            request.raw_content,
            request.headers.fields,
        )


def check_edit(before: Snapshot, request: http.Request, context: RequestContext | None) -> None:
    """Return where a person's edit of a request holds; StatusError 403 with the reason otherwise."""
    now = Snapshot.of(request)
    if now == before:
        return
    if context is None or context.route is None:
        raise forbidden("the edit does not hold: the hub has not understood the request")
    if context.answerer is not None:
        raise forbidden("the edit does not hold: the hub answers this request itself, as it was when it came")
    if (now.method, now.path, now.target) != (before.method, before.path, before.target):
        raise forbidden(
            "the edit does not hold: method, path and server were decided on; send a request of your own"
        )
    if now.decides != before.decides:
        raise forbidden(f"the edit does not hold: the hub has decided by {', '.join(_DECIDES)}")


def may_edit_answer(context: RequestContext | None) -> bool:
    """Whether an answer was relayed: a person may edit those. The node acts by the hub's own answers, so nobody edits
    them."""
    return (
        context is not None
        and context.route is not None
        and context.answerer is None
        and context.route.kind
        in (
            RouteKind.RELAY,
            RouteKind.CACHED_RELAY,
        )
    )
