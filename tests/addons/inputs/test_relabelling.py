"""Node labels that the manager publishes, and the local report on healthy nodes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping

import pytest
from aiohttp import web

from addons.inputs.input_sources import InputKind, unknown
from addons.inputs.local_health import MAX_REPORT, STALE_ROUNDS, LocalHealthSource, parse_health
from addons.telemetry.metrics import LOCAL_HEALTH_FAILURES, LOCAL_HEALTH_UNHEALTHY, LOCAL_HEALTH_UP
from kube.errors import StatusError, forbidden, not_found
from kube.json_type import Json
from kube.requests.node_labels import BUCKETS, HOSTNAME, bucket_of, read_labels, written_labels
from kube.requests.node_pools import POOL_LABEL
from tests.addons.inputs.test_filter_inputs import BUCKETS_NAME, NODE, Cluster
from tests.addons.support.samples import node
from tests.cloud.ports import LOOPBACK
from tests.support.background import beside
from tests.support.objects import obj

ZONES = {
    NODE: {"zone": "stale"},
    "n2": {"zone": "a", POOL_LABEL: "p1"},
    "n3": {"zone": "b", POOL_LABEL: "p1"},
}


def bucket(name: str, nodes: Mapping[str, Mapping[str, str]], version: int) -> Json:
    groups = [
        {"labels": dict(labels), "nodes": [each]} for each, labels in nodes.items() if bucket_of(each) == name
    ]
    return obj("NodeLabels", name, "", version, apiVersion="edgehub.io/v1", groups=groups)


def buckets(nodes: Mapping[str, Mapping[str, str]] = ZONES, version: int = 1) -> Iterable[Json]:
    return (bucket(f"{number:02}", nodes, version) for number in range(BUCKETS))


@pytest.fixture
async def cluster() -> Cluster:
    made = Cluster()
    made.source(BUCKETS_NAME).reflector.refusal = None
    return made


def zone(cluster: Cluster, name: str) -> tuple[bool, str | None]:
    """Return whether the zone of a node is known, and the zone."""
    asked = cluster.inputs.ask()
    labels = asked.node_labels(name)
    return not asked.pending, labels.get("zone") if labels is not None else None


async def test_labels_of_nodes_are_read_from_the_buckets_of_the_manager(cluster: Cluster) -> None:
    assert zone(cluster, "n2") == (False, None)
    cluster.fill(BUCKETS_NAME, *buckets())
    cluster.fill("own node", node(NODE, 1, zone="c"))
    assert [zone(cluster, name) for name in ("n2", "n3", "n4", NODE)] == [
        (True, "a"),
        (True, "b"),
        (True, None),
        (True, "c"),
    ]
    assert "nodes" not in cluster.list_watches
    moved = {**ZONES, "n3": {"zone": "a", POOL_LABEL: "p2"}, "n4": {}}
    changed = [cluster.apply(BUCKETS_NAME, "MODIFIED", each) for each in buckets(moved, 20)]
    touched = set().union(*changed)
    assert {
        (InputKind.NODE, "n3", "zone"),
        (InputKind.NODE, "n3", POOL_LABEL),
        (InputKind.NODE, "n4"),
    } <= touched
    assert not any("n2" in str(key) or NODE in str(key) for key in touched), "what is as it was is not told"
    assert zone(cluster, "n3") == (True, "a")
    cluster.inputs.close()


async def test_nodes_are_read_while_the_published_labels_are_incomplete(cluster: Cluster) -> None:
    """The manager has not written all buckets yet, or never does."""
    *most, last = buckets()
    cluster.fill(BUCKETS_NAME, *most)
    cluster.fill("nodes", node("n2", 2, zone="a"))
    assert zone(cluster, "n2") == (True, "a")
    assert cluster.apply(BUCKETS_NAME, "ADDED", last) == {unknown(InputKind.NODE_LABELS)}
    assert zone(cluster, "n3") == (True, "b")
    assert cluster.source("nodes").users == 0, "nobody reads each node any more"
    assert cluster.apply(BUCKETS_NAME, "DELETED", last) == {unknown(InputKind.NODE_LABELS)}
    assert zone(cluster, "n2") == (True, "a")
    assert zone(cluster, "n3") == (True, None)
    assert cluster.source("nodes").users == 1
    cluster.inputs.close()


@pytest.mark.parametrize("refusal", [not_found("nodelabels", ""), forbidden("no")])
async def test_nodes_are_read_if_the_cloud_refuses_the_published_labels(
    cluster: Cluster, refusal: StatusError
) -> None:
    cluster.fill("nodes", node("n2", 2, zone="a"))
    assert zone(cluster, "n2") == (False, None)
    cluster.notified.clear()
    cluster.source(BUCKETS_NAME).reflector.refuse(refusal)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert unknown(InputKind.NODE_LABELS) in set().union(*cluster.notified), "who waits asks again"
    assert zone(cluster, "n2") == (True, "a")
    cluster.inputs.close()


async def test_a_pool_by_label_has_the_nodes_that_the_manager_publishes(cluster: Cluster) -> None:
    cluster.missing()
    cluster.fill("own node", node(NODE, 1))
    cluster.fill(BUCKETS_NAME, *buckets())
    assert cluster.inputs.ask().pool_nodes("p1") == {"n2", "n3"}
    cluster.inputs.close()


@pytest.mark.parametrize("labels", [{HOSTNAME: "n1", "a": "1"}, {HOSTNAME: "other", "a": "1"}, {"a": "1"}])
def test_published_labels_are_read_unchanged(labels: dict[str, str]) -> None:
    assert read_labels("n1", written_labels("n1", labels, ["a", "b", HOSTNAME])) == labels


INTERVAL = 0.05


@pytest.mark.parametrize(
    ("body", "unhealthy"),
    [
        (b"{}", set()),
        (b'{"n1":{"normal":true,"time":"x"},"n2":{"normal":false,"hmac":""}}', {"n2"}),
        (b'{"10.0.0.7":{"normal":false}}', {"10.0.0.7"}),
    ],
)
def test_the_local_health_response_names_the_unhealthy_nodes(body: bytes, unhealthy: set[str]) -> None:
    assert parse_health(body) == unhealthy


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"n1":false}', b'{"n1":{}}', b'{"n1":{"normal":"no"}}', b"\xff"]
)
def test_a_malformed_local_health_response_is_an_error(body: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_health(body)


class HealthServer:
    """Serve `body`, or status 500 while it is empty. `notified` has the hub's results in order."""

    def __init__(self) -> None:
        self.body = b'{"n2":{"normal":false}}'
        self.asked = 0
        self.came = asyncio.Event()
        self.notified: asyncio.Queue[frozenset[str]] = asyncio.Queue()
        self.url = ""

    async def answer(self, _request: web.BaseRequest) -> web.StreamResponse:
        self.asked += 1
        self.came.set()
        return web.Response(body=self.body) if self.body else web.Response(status=500)


@pytest.fixture
async def health() -> AsyncIterator[HealthServer]:
    made = HealthServer()
    runner = web.ServerRunner(web.Server(made.answer))
    await runner.setup()
    site = web.TCPSite(runner, LOOPBACK, 0)
    await site.start()
    made.url = f"http://{LOOPBACK}:{runner.addresses[0][1]}/localinfo"
    source = LocalHealthSource(made.url, INTERVAL, made.notified.put_nowait)
    async with beside(source.run()):
        yield made
    await runner.cleanup()


async def test_the_last_local_health_response_is_used_for_a_time_during_failures(
    health: HealthServer,
) -> None:
    assert await health.notified.get() == {"n2"}
    assert LOCAL_HEALTH_UP._value.get() == LOCAL_HEALTH_UNHEALTHY._value.get() == 1
    failures = LOCAL_HEALTH_FAILURES._value.get()
    loop = asyncio.get_running_loop()
    health.body, began = b"", loop.time()
    assert await health.notified.get() == frozenset()
    # The time counts from the last response, at most one interval before the first failure.
    assert loop.time() - began > (STALE_ROUNDS - 1.5) * INTERVAL
    assert LOCAL_HEALTH_FAILURES._value.get() - failures >= 2
    assert LOCAL_HEALTH_UP._value.get() == 0
    health.body = b'{"n3":{"normal":false}}'
    assert await health.notified.get() == {"n3"}


async def test_an_unchanged_local_health_response_notifies_once(health: HealthServer) -> None:
    assert await health.notified.get() == {"n2"}
    seen = health.asked
    for _ in range(3):
        health.came.clear()
        await health.came.wait()
    assert health.asked >= seen + 3
    assert health.notified.empty()


async def test_a_local_health_response_beyond_the_size_bound_is_a_failure(health: HealthServer) -> None:
    assert await health.notified.get() == {"n2"}
    failures = LOCAL_HEALTH_FAILURES._value.get()
    health.body = b'{"n3":{"normal":false,"time":"' + b"x" * MAX_REPORT + b'"}}'
    assert await health.notified.get() == frozenset()
    assert LOCAL_HEALTH_FAILURES._value.get() > failures
