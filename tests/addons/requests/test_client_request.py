"""A request as a value: it has everything that the answer depends on, and its text never shows the caller's token."""

from __future__ import annotations

from addons.requests.route_decision import Route, RouteKind
from tests.addons.support.samples import POD, SERVICES, request_context


def test_a_context_becomes_a_value() -> None:
    context = request_context(SERVICES, component="kubelet", caller=POD)
    context.route, context.was_sent = Route(RouteKind.VIEW, "test"), True
    wanted = context.client_request()
    assert (wanted.info, wanted.component, wanted.caller) == (context.info, "kubelet", POD)
    assert (wanted.route, wanted.was_sent) == (context.route, True)
    assert POD.authorization not in repr(wanted)
