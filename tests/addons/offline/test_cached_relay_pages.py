"""Lists that come in several pages, or of a version of the past, as the cached relay keeps them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from addons.requests.answers import ClientRequest
from addons.requests.route_decision import Route, RouteKind
from kube.requests.request_info import parse_request
from tests.addons.offline.test_cached_relay import TYPED, Node, node_in
from tests.addons.support.samples import HUB, raw, read_of


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with node_in(tmp_path) as made:
        yield made


PODS_PATH = "/api/v1/namespaces/a/pods"


def page(version: int, *, following: str = "") -> bytes:
    return raw(
        {"kind": "PodList", "metadata": {"resourceVersion": str(version), "continue": following}, "items": []}
    )


async def test_a_list_of_several_pages_is_kept_with_its_last(node: Node) -> None:
    """It was never kept: kubectl lists in pages of 500."""
    pages = {f"{PODS_PATH}?limit=5": page(7, following="t"), f"{PODS_PATH}?limit=5&continue=t": page(7)}
    for target, body in pages.items():
        node.passed("GET", target, 200, body, headers=TYPED)
    node.health.failed("gone")
    route = Route(RouteKind.CACHED_RELAY, "test", read=read_of(PODS_PATH))
    for target, body in pages.items():
        wanted = ClientRequest(parse_request("GET", target), "kubectl", HUB, route)
        assert (await node.send_as(wanted, target))[:2] == (200, body)


@pytest.mark.parametrize(
    "query", ["resourceVersionMatch=Exact&resourceVersion=3", "resourceVersion=3&limit=5"]
)
async def test_a_list_of_the_past_is_not_kept_for_the_present(node: Node, query: str) -> None:
    node.passed("GET", PODS_PATH, 200, page(7), headers=TYPED)
    node.passed("GET", f"{PODS_PATH}?{query}", 200, page(3), headers=TYPED)
    node.health.failed("gone")
    assert (await node.get(PODS_PATH))[:2] == (200, page(7))
