"""Reads while the cloud is away: each row of the table in `docs/offline.md`, on the real control plane."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from addons.offline.cached_response import list_head
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from tests.cloud.real import RealCloud
from tests.cloud.rest import RestError
from tests.cloud.rights import rights, rule, user
from tests.hub.support.outage import JSON, NOTICE, PROTOBUF, Outage
from tests.hub.support.process import SLACK
from tests.hub.support.streams import listed


def service(name: str, **labels: str) -> dict[str, object]:
    return {"metadata": {"name": name, "labels": labels}, "spec": {"ports": [{"port": 80}]}}


async def test_a_relayed_response_is_served_offline_in_each_form(
    outage: Outage, real_cloud: RealCloud, namespace: str, offline: Callable[[], Awaitable[None]]
) -> None:
    services = f"/api/v1/namespaces/{namespace}/services"
    await asyncio.to_thread(real_cloud.admin.post, services, service("one"))
    paths = ["/version", "/api", "/apis", "/api/v1", "/openapi/v3", f"{services}/one", services]
    before = {(path, accept): await outage.ask(path, accept) for path in paths for accept in (JSON, PROTOBUF)}
    # kube-apiserver writes /version and /openapi/v3 as JSON only.
    seen = {asked for asked, answer in before.items() if answer.status == 200}
    assert len(seen) >= 12
    await offline()
    for asked in seen:
        after = await outage.ask(*asked)
        assert after.status == 200, (asked, after.body)
        assert after.headers["Content-Type"] == before[asked].headers["Content-Type"]
        if not asked[0].startswith(services):
            assert after.body == before[asked].body


UNFILTERED = "flanneld"
"""A cached component whose reads no rule filters."""


async def test_pages_of_a_list_are_the_same_online_and_offline(
    outage: Outage, real_cloud: RealCloud, namespace: str, offline: Callable[[], Awaitable[None]]
) -> None:
    async def walked(path: str, accept: str) -> list[str]:
        """Return the names in a list, page by page."""
        names: list[str] = []
        target = f"{path}?limit=1"
        while target:
            answer = await outage.ask(target, accept, UNFILTERED)
            assert answer.status == 200, answer.body
            codec = codec_for(Encoding(answer.headers["Content-Type"]))
            if b'"kind":"Table"' in answer.body:
                names += [row["object"]["metadata"]["name"] for row in answer.json()["rows"]]
            else:
                names += [codec.peek(raw).name for raw in codec.decode_list(answer.body).items]
            token = list_head(codec.encoding, answer.body).continue_token
            target = f"{path}?limit=1&continue={quote(token)}" if token else ""
        return names

    path = f"/api/v1/namespaces/{namespace}/services"
    for name in ("one", "two", "three"):
        await asyncio.to_thread(real_cloud.admin.post, path, service(name))
    table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    forms = (JSON, table, PROTOBUF)
    assert [await walked(path, accept) for accept in forms] == [["one", "three", "two"]] * 3
    await offline()
    assert [await walked(path, accept) for accept in forms] == [["one", "three", "two"]] * 3
    assert (await outage.ask(f"{path}?limit=1&continue=x", component=UNFILTERED)).status == 410


async def test_a_list_at_a_version_is_relayed_to_the_cloud(
    outage: Outage, real_cloud: RealCloud, namespace: str, offline: Callable[[], Awaitable[None]]
) -> None:
    path = f"/api/v1/namespaces/{namespace}/services"

    async def both(**query: str) -> tuple[object, object]:
        answer = await outage.ask(f"{path}?{urlencode(query)}", component=UNFILTERED)
        try:
            real = (200, shape(await asyncio.to_thread(partial(real_cloud.admin.get, path, **query))))
        except RestError as error:
            real = (error.answer.status, ())
        return (answer.status, shape(answer.json()) if answer.status == 200 else ()), real

    def shape(found: Any) -> tuple[object, ...]:
        return found["metadata"]["resourceVersion"], *(each["metadata"]["name"] for each in found["items"])

    await asyncio.to_thread(real_cloud.admin.post, path, service("one"))
    then = (await asyncio.to_thread(real_cloud.admin.get, path))["metadata"]["resourceVersion"]
    await asyncio.to_thread(real_cloud.admin.post, path, service("two"))
    past: list[dict[str, str]] = [
        {"resourceVersion": then, "limit": "5"},
        {"resourceVersion": then, "resourceVersionMatch": "Exact"},
        {"resourceVersion": then, "resourceVersionMatch": "Exact", "limit": "5"},
    ]
    for query in past:
        hub, real = await both(**query)
        assert hub == real == (200, (then, "one"))
    newest = await outage.ask(path, component=UNFILTERED)
    now = newest.json()["metadata"]["resourceVersion"]
    await offline()
    assert shape((await outage.ask(path, component=UNFILTERED)).json()) == shape(newest.json())
    for query in past:
        assert (await outage.ask(f"{path}?{urlencode(query)}", component=UNFILTERED)).status == 410, (
            "as after a compaction"
        )
    hub, real = await both(resourceVersion=now, resourceVersionMatch="Exact")
    assert hub == real


async def test_an_object_is_served_from_a_cached_list_and_an_absent_one_is_404(
    outage: Outage, real_cloud: RealCloud, namespace: str, offline: Callable[[], Awaitable[None]]
) -> None:
    path = f"/api/v1/namespaces/{namespace}/services"
    await asyncio.to_thread(real_cloud.admin.post, path, service("one", app="a"))
    two = await asyncio.to_thread(real_cloud.admin.post, path, service("two", app="b"))
    version = two["metadata"]["resourceVersion"]
    await listed(outage.hub.url, "/api/v1/services", component="kube-proxy", resourceVersion=version)
    await offline()
    assert (await outage.ask(f"{path}/two")).status == 200
    gone = await outage.ask(f"{path}/three")
    assert (gone.status, b'"NotFound"' in gone.body) == (404, True)
    # A consistent list, with selectors that no client used before.
    assert set(await listed(outage.hub.url, path, component="flanneld", labelSelector="app=b")) == {"two"}
    assert set(
        await listed(outage.hub.url, path, component="flanneld", fieldSelector="metadata.name=one")
    ) == {"one"}


async def test_a_list_in_progress_in_a_black_hole_is_answered_by_the_node(
    outage: Outage, real_cloud: RealCloud, namespace: str, offline: Callable[[], Awaitable[None]]
) -> None:
    path = f"/api/v1/namespaces/{namespace}/services"
    await asyncio.to_thread(real_cloud.admin.post, path, service("one"))
    assert (await outage.ask(path)).status == 200
    await asyncio.to_thread(outage.link.black_hole)
    began = time.monotonic()
    answer = await outage.ask(f"{path}?timeout=10s")
    assert answer.status == 200
    assert time.monotonic() - began < NOTICE + SLACK


@pytest.mark.parametrize(("first", "then"), [(PROTOBUF, JSON), (JSON, PROTOBUF)])
async def test_a_copy_in_one_encoding_is_served_in_the_other(
    outage: Outage,
    real_cloud: RealCloud,
    namespace: str,
    node_name: str,
    offline: Callable[[], Awaitable[None]],
    first: str,
    then: str,
) -> None:
    """Filtered reads of kube-proxy and coredns, and single responses such as a volume's, were once 503 in JSON."""
    rules = [rule("", "configmaps", "get list watch")]
    granted = rights("reads", rules, user(f"system:node:{node_name}"), namespace=namespace)
    await asyncio.to_thread(real_cloud.apply, granted)
    services, maps = (f"/api/v1/namespaces/{namespace}/{each}" for each in ("services", "configmaps"))
    await asyncio.to_thread(real_cloud.admin.post, services, service("one"))
    await asyncio.to_thread(real_cloud.admin.post, maps, {"metadata": {"name": "one"}, "data": {"a": "b"}})
    # A selector that no other test of this hub uses, so that there is one copy.
    listed_as = f"{maps}?resourceVersion=0&labelSelector=none!%3D{first[-4:]}"
    assert (await outage.ask(listed_as, first, UNFILTERED)).status == 200
    assert (await outage.ask(f"{maps}/one", first)).status == 200
    await offline()
    found = await outage.ask(f"{maps}/one", then)
    assert (found.status, found.headers["Content-Type"], b"one" in found.body) == (200, then, True)
    listed = await outage.ask(listed_as, then, UNFILTERED)
    assert (listed.status, listed.headers["Content-Type"], b"one" in listed.body) == (200, then, True)
    watched = await outage.ask(f"{listed_as}&watch=true&timeoutSeconds=2", then, UNFILTERED)
    assert (watched.status, b"one" in watched.body) == (200, True)
