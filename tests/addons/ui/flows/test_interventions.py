"""The allowed replays and edits. The hub never filters one request and sends another."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from mitmproxy import http
from mitmproxy.test import tflow

from addons.requests.caller import Caller, CredentialSource
from addons.requests.request_context import RequestContext
from addons.requests.route_decision import Route, RouteKind
from addons.ui.flows.interventions import (
    CALLER,
    TEXT_BODY,
    Snapshot,
    check_edit,
    check_replay,
    may_edit_answer,
)
from kube.errors import StatusError
from tests.addons.support.routed import NoAnswerer
from tests.addons.support.samples import request_context

type Edit = Callable[[http.Request], None]


def routed(
    kind: RouteKind = RouteKind.RELAY,
    *,
    is_own: bool = False,
    credential_source: CredentialSource = CredentialSource.HUB,
) -> RequestContext:
    made = request_context(caller=Caller(credential_source))
    made.route, made.answerer = Route(kind, "because"), NoAnswerer() if is_own else None
    return made


def sent_by(credential_source: CredentialSource | None, **more: object) -> http.HTTPFlow:
    flow = tflow.tflow()
    flow.metadata.update({CALLER: str(credential_source)} if credential_source is not None else {}, **more)
    return flow


@pytest.mark.parametrize("credential_source", CredentialSource)
def test_a_replay_of_the_same_caller_is_allowed(credential_source: CredentialSource) -> None:
    check_replay(sent_by(credential_source), routed(credential_source=credential_source))


@pytest.mark.parametrize(
    ("flow", "now", "why"),
    [
        (sent_by(CredentialSource.OWN), CredentialSource.HUB, "a token of its own"),
        (sent_by(CredentialSource.OWN), CredentialSource.NONE, "a token of its own"),
        (sent_by(CredentialSource.HUB), CredentialSource.NONE, "the node's certificate"),
        (sent_by(CredentialSource.NONE), CredentialSource.HUB, "no credentials"),
        (sent_by(None), CredentialSource.HUB, "the sender of this request is unknown"),
        (
            sent_by(CredentialSource.HUB, **{TEXT_BODY: True}),
            CredentialSource.HUB,
            "has not kept the request's body",
        ),
    ],
)
def test_a_replay_as_another_caller_is_refused_with_the_reason(
    flow: http.HTTPFlow, now: CredentialSource, why: str
) -> None:
    with pytest.raises(StatusError, match=why) as error:
        check_replay(flow, routed(credential_source=now))
    assert 400 <= error.value.code < 500


def header(name: str, value: str = "1") -> Edit:
    return lambda request: request.headers.__setitem__(name, value)


HOLDS: dict[str, Edit] = {
    "the body": lambda request: setattr(request, "content", b"another"),
    "a header": header("X-Mine"),
}
DECIDED = "method, path and server are fixed by now"
DOES_NOT: dict[str, tuple[Edit, str]] = {
    "the path": (lambda request: setattr(request, "path", "/api/v1/secrets"), DECIDED),
    "the method": (lambda request: setattr(request, "method", "DELETE"), DECIDED),
    "the server": (lambda request: setattr(request, "port", 6443), DECIDED),
    "a second request": (header("X-Mine", "1\r\n\r\nDELETE / HTTP/1.1"), ""),
    **{
        name: (header(name), "the hub has routed the request by user-agent, ")
        for name in ("User-Agent", "Authorization", "Impersonate-User", "X-Remote-User")
    },
}


@pytest.mark.parametrize("kind", [RouteKind.RELAY, RouteKind.CACHED_RELAY])
@pytest.mark.parametrize("what", [*HOLDS, *DOES_NOT])
def test_an_edit_of_a_relayed_request_is_allowed_if_its_route_stays(kind: RouteKind, what: str) -> None:
    request = tflow.tflow().request
    before = Snapshot.of(request)
    edit, why = DOES_NOT.get(what) or (HOLDS[what], None)
    edit(request)
    if why is None:
        check_edit(before, request, routed(kind))
    else:
        with pytest.raises(StatusError, match=f"edit rejected: .*{why}"):
            check_edit(before, request, routed(kind))


@pytest.mark.parametrize("what", HOLDS)
@pytest.mark.parametrize("context", [routed(RouteKind.VIEW, is_own=True), None])
def test_an_edit_of_a_request_that_the_hub_answers_is_rejected(
    context: RequestContext | None, what: str
) -> None:
    request = tflow.tflow().request
    before = Snapshot.of(request)
    check_edit(before, request, context)
    HOLDS[what](request)
    with pytest.raises(StatusError, match="edit rejected"):
        check_edit(before, request, context)


@pytest.mark.parametrize(
    ("context", "may"),
    [
        (routed(RouteKind.RELAY), True),
        (routed(RouteKind.CACHED_RELAY), True),
        (routed(RouteKind.CACHED_RELAY, is_own=True), False),
        (routed(RouteKind.VIEW, is_own=True), False),
        (routed(RouteKind.LOCAL, is_own=True), False),
        (None, False),
    ],
)
def test_only_relayed_responses_may_be_edited(context: RequestContext | None, *, may: bool) -> None:
    assert may_edit_answer(context) is may
