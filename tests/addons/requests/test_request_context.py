"""The context of a request: found by its flow while the flow lives, and hidden from people who see the flow."""

from __future__ import annotations

import gc
import weakref

from mitmproxy.test import tflow

from addons.requests.caller import Lending
from addons.requests.request_context import RequestContext, begin, context_of
from kube.requests.request_info import parse_request
from tests.addons.support.samples import POD, request_context


def test_a_new_exchange_is_lent_nothing_and_goes_nowhere() -> None:
    known = request_context()
    made = RequestContext(parse_request("GET", "/version"), "", known.listener, None)
    assert made.caller.lending is Lending.NONE
    assert (made.route, made.server, made.ticket, made.counted) == (None, "", "", False)


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
