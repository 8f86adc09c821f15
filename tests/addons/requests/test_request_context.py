"""The context of a request: found by its flow, hidden from people who see that, and made a value."""

from __future__ import annotations

import gc
import weakref

from mitmproxy import http
from mitmproxy.test import tflow, tutils

from addons.requests.caller import Lending
from addons.requests.hidden_credentials import hide
from addons.requests.request_context import RequestContext, begin, context_of
from addons.requests.route_decision import Route, RouteKind
from kube.requests.request_info import parse_request
from tests.addons.support.samples import POD, SERVICES, request_context


def test_a_new_exchange_is_lent_nothing_and_goes_nowhere() -> None:
    known = request_context()
    made = RequestContext(parse_request("GET", "/version"), "", known.listener, None)
    assert made.caller.lending is Lending.NONE
    assert (made.route, made.server, made.answerer, made.counted) == (None, "", None, False)


def test_each_flow_has_its_own() -> None:
    one, other = tflow.tflow(), tflow.tflow()
    made = request_context(), request_context()
    begin(one, made[0])
    begin(other, made[1])
    assert context_of(one) is made[0]
    assert context_of(other) is made[1]


def test_a_flow_that_nobody_read_has_none() -> None:
    assert context_of(tflow.tflow()) is None


def test_a_copy_of_a_flow_is_another_request() -> None:
    """As when a person replays one: it must be read and judged anew."""
    flow = tflow.tflow()
    begin(flow, request_context())
    assert context_of(flow.copy()) is None


def test_the_callers_token_is_in_nothing_that_mitmproxy_writes() -> None:
    flow = tflow.tflow()
    begin(flow, request_context(caller=POD))
    assert POD.authorization not in repr(flow.get_state())
    assert not flow.metadata


def test_it_goes_with_its_flow() -> None:
    flow, made = tflow.tflow(), request_context()
    begin(flow, made)
    gone = weakref.ref(flow)
    del flow
    gc.collect()
    assert gone() is None


def test_a_request_of_a_view_becomes_a_value_without_its_headers() -> None:
    context = request_context(SERVICES, component="kubelet", caller=POD)
    context.route, context.sent = Route(RouteKind.VIEW, "test"), 1
    wanted = context.client_request(tutils.treq(path=SERVICES.encode()))
    assert (wanted.info, wanted.component, wanted.caller) == (context.info, "kubelet", POD)
    assert (wanted.route, wanted.sent, wanted.target) == (context.route, 1, SERVICES)
    assert not wanted.headers
    assert POD.authorization not in repr(wanted)


def test_another_request_has_all_that_its_sender_gave_it() -> None:
    context = request_context(SERVICES)
    context.route = Route(RouteKind.CACHED_RELAY, "test")
    fields = [(b"Authorization", b"Bearer x"), (b"Accept", b"a"), (b"accept", b"b\xff")]
    request = tutils.treq(path=b"/api?token=secret", headers=http.Headers(fields), content=b"body")
    hide(request)
    wanted = context.client_request(request)
    assert (wanted.target, wanted.body) == ("/api?token=secret", b"body")
    assert list(wanted.headers.items()) == [
        ("Accept", "a"),
        ("accept", "b\udcff"),
        ("Authorization", "Bearer x"),
    ]
    assert wanted.headers["authorization"] == "Bearer x"
