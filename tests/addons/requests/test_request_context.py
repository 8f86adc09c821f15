"""The permission to send a request upstream: its holders, and the routes that have it."""

from __future__ import annotations

import ast

import pytest

from addons.requests.request_context import RelayUpstream
from addons.requests.route_decision import SENT, Route, RouteKind
from kube.errors import StatusError
from kube.http.transport.connection_pool import Connection
from tests.repository.support.tree import label, parse, product_modules


@pytest.mark.parametrize("kind", [None, *RouteKind])
def test_a_route_without_a_server_sends_nothing(kind: RouteKind | None) -> None:
    class Server:
        """A server without a connection."""

        scheme, host, port = "https", "cloud.example", 443

        def available(self) -> Connection | None:
            return None

        async def opened(self) -> Connection:
            raise ConnectionRefusedError

    route = Route(kind, "test") if kind is not None else None
    if kind in SENT:
        assert RelayUpstream(route, Server()).route is route
    else:
        with pytest.raises(StatusError, match="no component answers"):
            RelayUpstream(route, Server())


def test_only_egress_sends_requests() -> None:
    """Any other call of the constructor, or of `relay`, would be another way for requests to leave the node."""
    calls = {
        (label(path), node.func.id)
        for path in product_modules()
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert {caller for caller, name in calls if name == "RelayUpstream"} == {"addons/egress.py"}
    assert {caller for caller, name in calls if name == "ServerAnswer"} == {"addons/server/relay.py"}
