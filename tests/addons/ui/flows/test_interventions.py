"""Which replays run and which edits hold. The hub never filters one request and sends another."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from mitmproxy import http
from mitmproxy.test import tflow

from addons.requests.caller import Caller, Lending
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


def routed(
    kind: RouteKind = RouteKind.RELAY, *, is_own: bool = False, lending: Lending = Lending.HUB
) -> RequestContext:
    made = request_context(caller=Caller(lending))
    made.route, made.answerer = Route(kind, "because"), NoAnswerer() if is_own else None
    return made


def sent_by(lending: Lending | None, **more: object) -> http.HTTPFlow:
    flow = tflow.tflow()
    flow.metadata.update({CALLER: str(lending)} if lending is not None else {}, **more)
    return flow


@pytest.mark.parametrize("lending", Lending)
def test_a_replay_runs_as_who_sent_it(lending: Lending) -> None:
    check_replay(sent_by(lending), routed(lending=lending))


@pytest.mark.parametrize(
    ("flow", "now", "why"),
    [
        (sent_by(Lending.OWN), Lending.HUB, "a token of its own"),
        (sent_by(Lending.OWN), Lending.NONE, "a token of its own"),
        (sent_by(Lending.HUB), Lending.NONE, "the node's certificate"),
        (sent_by(Lending.NONE), Lending.HUB, "no credentials"),
        (sent_by(None), Lending.HUB, "does not know who sent"),
        (sent_by(Lending.HUB, **{TEXT_BODY: True}), Lending.HUB, "has not kept the request's body"),
    ],
)
def test_a_replay_as_somebody_else_is_refused(flow: http.HTTPFlow, now: Lending, why: str) -> None:
    with pytest.raises(StatusError, match=why) as error:
        check_replay(flow, routed(lending=now))
    assert 400 <= error.value.code < 500


def set_body(request: http.Request) -> None:
    request.content = b"another"


def set_path(request: http.Request) -> None:
    request.path = "/api/v1/secrets"


def set_method(request: http.Request) -> None:
    request.method = "DELETE"


def set_server(request: http.Request) -> None:
    request.port = 6443


def set_agent(request: http.Request) -> None:
    request.headers["User-Agent"] = "kube-proxy"


def set_other_header(request: http.Request) -> None:
    request.headers["X-Mine"] = "1"


HOLDS = (set_body, set_other_header)
DECIDED = "method, path and server were decided on"
DOES_NOT: dict[Callable[[http.Request], None], str] = {
    set_path: DECIDED,
    set_method: DECIDED,
    set_server: DECIDED,
    set_agent: "the hub has decided by user-agent",
}


@pytest.mark.parametrize("kind", [RouteKind.RELAY, RouteKind.CACHED_RELAY])
@pytest.mark.parametrize("edit", [*HOLDS, *DOES_NOT])
def test_an_edit_of_a_relay(kind: RouteKind, edit: Callable[[http.Request], None]) -> None:
    request = tflow.tflow().request
    before = Snapshot.of(request)
    edit(request)
    if edit in HOLDS:
        check_edit(before, request, routed(kind))
    else:
        with pytest.raises(StatusError, match=f"the edit does not hold: .*{DOES_NOT[edit]}"):
            check_edit(before, request, routed(kind))


@pytest.mark.parametrize("edit", [*HOLDS, *DOES_NOT])
@pytest.mark.parametrize("context", [routed(RouteKind.VIEW, is_own=True), None])
def test_no_edit_of_what_the_hub_answers_holds(
    context: RequestContext | None, edit: Callable[[http.Request], None]
) -> None:
    request = tflow.tflow().request
    before = Snapshot.of(request)
    check_edit(before, request, context)
    edit(request)
    with pytest.raises(StatusError, match="the edit does not hold"):
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
def test_whose_answers_may_be_edited(context: RequestContext | None, *, may: bool) -> None:
    assert may_edit_answer(context) is may
