"""Reads from the node's own sources: the requests that a copy can answer, and those that it cannot."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator
from pathlib import Path
from unittest.mock import patch

import pytest

from addons.offline import cached_response
from addons.offline.accepted.accepted_writes import AcceptedWrites
from addons.offline.cached_responses import CachedResponses
from addons.offline.offline_reads import OfflineReads, _covers, _may_hold, _scope
from addons.requests.cloud_identity import HUB_IDENTITY, CloudIdentity
from addons.views.sources import CloudReads, Sources
from kube.http.client import Unreachable
from kube.json_type import Json
from kube.reflector.list_watch import ListWatch
from kube.requests.request_info import ResourceType
from kube.store.store import Store
from kube.wire.encoding import Encoding
from tests.addons.support.copying import copies_in, settled
from tests.addons.support.exchange import Exchange
from tests.addons.support.offline_parts import JSON, PROTOBUF, QueuedAnswers, asked, read
from tests.addons.support.offline_world import OfflineWorld, open_world
from tests.addons.support.samples import fill, raw, read_of, service
from tests.addons.support.unfiltered import unfiltered
from tests.support.objects import obj

PODS = ResourceType("", "v1", "pods")
EVERYWHERE = ListWatch(PODS)
OF_NODE = ListWatch(PODS, field_selector="spec.nodeName=n")
OF_NAMESPACE = ListWatch(PODS, "a")
OF_APP = ListWatch(PODS, label_selector="app=x")
ONE = ListWatch(PODS, "a", field_selector="metadata.name=p")


@pytest.mark.parametrize(
    ("list_watch", "target", "answered"),
    [
        (EVERYWHERE, "/api/v1/pods", True),
        (EVERYWHERE, "/api/v1/namespaces/a/pods", True),
        (EVERYWHERE, "/api/v1/pods?labelSelector=app%3Dx", True),
        (EVERYWHERE, "/api/v1/pods?fieldSelector=metadata.name%3Dp", True),
        # The protobuf schema may lack the field; only the cloud can select by it.
        (EVERYWHERE, "/api/v1/pods?fieldSelector=spec.nodeName%3Dn", False),
        (OF_NODE, "/api/v1/pods?fieldSelector=spec.nodeName%3Dn", True),
        (OF_NODE, "/api/v1/pods", False),
        (OF_NODE, "/api/v1/pods?fieldSelector=spec.nodeName%3Dother", False),
        (OF_NAMESPACE, "/api/v1/namespaces/a/pods", True),
        (OF_NAMESPACE, "/api/v1/namespaces/b/pods", False),
        (OF_NAMESPACE, "/api/v1/pods", False),
        (OF_APP, "/api/v1/pods?labelSelector=app%3Dx", True),
        (OF_APP, "/api/v1/pods?labelSelector=app%3Dx,more", False),
    ],
)
def test_a_list_is_answered_only_from_a_complete_copy(
    list_watch: ListWatch, target: str, answered: bool
) -> None:
    assert (_scope(list_watch, read_of(target)) is not None) is answered


@pytest.mark.parametrize(
    ("list_watch", "name", "known"),
    [
        (EVERYWHERE, "p", True),
        (OF_NAMESPACE, "p", True),
        (ONE, "p", True),
        (ONE, "other", False),
        (OF_NODE, "p", False),
        (OF_APP, "p", False),
        (ListWatch(PODS, "b"), "p", False),
    ],
)
def test_404_is_answered_only_if_the_copy_would_contain_the_object(
    list_watch: ListWatch, name: str, known: bool
) -> None:
    assert _covers(list_watch, read_of(f"/api/v1/namespaces/a/pods/{name}")) is known


@pytest.mark.parametrize(
    ("list_watch", "may"),
    [
        (EVERYWHERE, True),
        (OF_NODE, True),
        (ONE, True),
        (ListWatch(PODS, "a", field_selector="metadata.name=p,spec.x=y"), True),
        (ListWatch(PODS, "a", field_selector="metadata.name=other"), False),
        (ListWatch(PODS, "b"), False),
    ],
)
def test_a_copy_that_cannot_contain_the_object_is_not_read_from_disk(
    list_watch: ListWatch, may: bool
) -> None:
    assert _may_hold(("a", "p"), list_watch) is may


# -- the newest of several copies ----------------------------------------------------------------------------------

TARGET = "/api/v1/namespaces/a/pods"


def pod(name: str, version: int, *, phase: str = "", namespace: str = "a") -> Json:
    return obj("Pod", name, namespace, version, **({"status": {"phase": phase}} if phase else {}))


def listed(version: int, *items: Json, token: str = "", kind: str = "PodList") -> Json:
    head: Json = {"resourceVersion": str(version), **({"continue": token} if token else {})}
    rows = {"rows" if kind == "Table" else "items": list(items)}
    return {"kind": kind, "apiVersion": "v1", "metadata": head, **rows}


class Node(OfflineWorld):
    async def names(self, target: str) -> dict[str, int] | int | None:
        """Return the names in a list, with versions; or the code of a refusal."""
        found = await self.get(target)
        if not isinstance(found, dict):
            return found
        items = (each["metadata"] for each in found["items"])
        return {each["name"]: int(each["resourceVersion"]) for each in items}


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with copies_in(tmp_path) as copies, open_world(Node(copies)) as made:
        yield made


JSON_EVERYWHERE, JSON_OF_NAMESPACE, JSON_OF_NODE = (
    each._replace(encoding=Encoding.JSON) for each in (EVERYWHERE, OF_NAMESPACE, OF_NODE)
)


@pytest.mark.parametrize("older_first", [True, False])
async def test_the_newer_of_two_copies_is_used(node: Node, older_first: bool) -> None:
    copies = {JSON_EVERYWHERE: (5, [pod("p", 4), pod("gone", 3)]), JSON_OF_NAMESPACE: (9, [pod("p", 8)])}
    for list_watch in copies if older_first else reversed(copies):
        version, pods = copies[list_watch]
        node.hold(list_watch, version, *pods)
    found = await node.get(f"{TARGET}/p")
    assert isinstance(found, dict)
    assert found["metadata"]["resourceVersion"] == "8"
    assert await node.get(f"{TARGET}/gone") == 404
    assert await node.names(TARGET) == {"p": 8}
    assert await node.names("/api/v1/pods") == {"p": 4, "gone": 3}, "only the older one has all namespaces"


@pytest.mark.parametrize(
    ("component", "held", "code"),
    [("kubelet", EVERYWHERE, 200), ("kubelet", OF_NODE, 503), ("kubectl", OF_NODE, 200)],
)
async def test_only_users_clients_may_watch_a_partial_copy(
    node: Node, component: str, held: ListWatch, code: int
) -> None:
    node.hold(held._replace(encoding=Encoding.JSON), 5, pod("p", 4))
    read = read_of("/api/v1/pods?watch=true", f"{JSON};as=Table;v=v1;g=meta.k8s.io")
    exchange = Exchange()
    exchange.start(node.reads.watch("", component, read, exchange, None))
    assert await exchange.status == code
    if code == 200:
        assert b'"kind":"Table"' in await exchange.next_piece()
    await exchange.closed()


async def test_a_list_is_in_the_order_of_its_keys(node: Node) -> None:
    keys = [("b", "x"), ("a", "z"), ("a-b", "y"), ("a", "c")]
    node.hold(JSON_EVERYWHERE, 9, *(pod(name, 3, namespace=namespace) for namespace, name in keys))
    found = await node.names("/api/v1/pods")
    assert isinstance(found, dict)
    assert list(found) == ["y", "c", "z", "x"]


AS_TABLE, AS_METADATA = (
    f"{JSON};as={kind};v=v1;g=meta.k8s.io" for kind in ("Table", "PartialObjectMetadata")
)
PARTIAL = {
    "kind": "PartialObjectMetadata",
    "apiVersion": "meta.k8s.io/v1",
    "metadata": pod("p", 8)["metadata"],
}
ONE_ROW = {**listed(8, {"cells": ["p"], "object": PARTIAL}, kind="Table"), "apiVersion": "meta.k8s.io/v1"}


@pytest.mark.parametrize("accept", [JSON, PROTOBUF, AS_TABLE, AS_METADATA])
async def test_a_stored_response_without_the_object_is_not_returned(node: Node, accept: str) -> None:
    """After `kubectl get` a JSON client got a Table, or an object of metadata alone."""
    node.keep(f"{TARGET}/p", PARTIAL, accept=AS_METADATA)
    node.keep(f"{TARGET}/p", ONE_ROW, accept=AS_TABLE)
    found = await node.get(f"{TARGET}/p", accept)
    expected = {AS_TABLE: ONE_ROW, AS_METADATA: PARTIAL}
    assert found == expected.get(accept)


async def test_an_object_that_a_client_has_as_a_table_is_not_absent(node: Node) -> None:
    node.hold(JSON_EVERYWHERE, 5, kind="Pod")
    node.keep(f"{TARGET}/p", ONE_ROW, accept=AS_TABLE)
    assert await node.get(f"{TARGET}/p") is None
    assert await node.get(f"{TARGET}/q") == 404


@pytest.mark.parametrize("name", ["known", "absent"])
@pytest.mark.parametrize("accept", ["text/html", "application/yaml", f"{JSON};as=Table;v=v9;g=meta.k8s.io"])
async def test_a_form_that_the_hub_cannot_make_is_refused_first(node: Node, accept: str, name: str) -> None:
    """A 406 comes before a 404, like in kube-apiserver; it was 404 or 503, by what the hub knew."""
    assert await node.get(f"{TARGET}/{name}", accept) == 406, "and where nothing is known"
    node.hold(JSON_EVERYWHERE, 9, pod("known", 8))
    assert await node.get(f"{TARGET}/{name}", accept) == 406
    assert await node.get(TARGET, accept) == 406


@pytest.mark.parametrize("newer", [JSON, PROTOBUF])
async def test_the_newest_form_of_a_stored_response_is_used(node: Node, newer: str) -> None:
    """Each client got the object as it was at the last request in its own form."""
    for accept in (JSON, PROTOBUF):
        node.keep(f"{TARGET}/p", pod("p", 9 if accept == newer else 4), accept=accept)
    for accept in (JSON, PROTOBUF, AS_METADATA, AS_TABLE):
        found = await node.get(f"{TARGET}/p", accept)
        assert isinstance(found, dict)
        assert found["metadata"]["resourceVersion"] == "9"


async def test_a_copy_on_disk_is_used_if_newer_than_a_running_source(tmp_path: Path) -> None:
    store = Store()
    async with copies_in(tmp_path) as copies:
        copy = copies.copy("", JSON_OF_NAMESPACE, store)
        fill(store, [pod("p", 8)], 9)
        await settled(copy)
        copy.close()
        node = Node(copies)
        node.hold(JSON_EVERYWHERE, 5, pod("p", 4))
        assert await node.names(TARGET) == {"p": 8}
        node.sources.close()


async def test_an_object_in_a_newer_copy_of_another_encoding_is_not_404(node: Node) -> None:
    node.hold(JSON_OF_NODE, 9, pod("p", 8))
    node.hold(JSON_EVERYWHERE, 5, kind="Pod")
    protobuf = Encoding.PROTOBUF.value
    answer = await node.reads.answer(
        HUB_IDENTITY, asked("GET", f"{TARGET}/p", accept=protobuf), read_of(f"{TARGET}/p", protobuf)
    )
    assert answer is not None
    assert isinstance(answer.body, bytes)
    assert read(answer.body, protobuf).name == "p"
    assert await node.get(f"{TARGET}/q", protobuf) == 404


@pytest.mark.parametrize(("cached_version", "shown"), [(4, {"p": 3}), (5, {"p": 3}), (9, {"p": 3, "q": 8})])
async def test_a_stored_list_is_used_if_newer_than_the_copies(
    node: Node, cached_version: int, shown: dict[str, int]
) -> None:
    """A client once lost q from its list, as q's event had not arrived before the outage."""
    store = node.hold(JSON_EVERYWHERE, 5, pod("p", 3))
    node.keep(TARGET, listed(cached_version, pod("p", 3), pod("q", 8)))
    assert await node.names(TARGET) == shown
    store.amend(raw(pod("p", 3, phase="Running")))
    found = await node.get(TARGET)
    assert isinstance(found, dict)
    assert found["items"][0].get("status") == {"phase": "Running"}, "what the node wrote since"


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("resourceVersion=0", {"p": 8}),
        ("resourceVersion=9", {"p": 8}),
        ("resourceVersion=4", {"p": 8}),
        ("resourceVersion=10", 504),
        ("resourceVersion=9&resourceVersionMatch=Exact", {"p": 8}),
        ("resourceVersion=4&resourceVersionMatch=Exact", 410),
        ("resourceVersion=10&resourceVersionMatch=Exact", 504),
        ("resourceVersion=4&resourceVersionMatch=NotOlderThan", {"p": 8}),
        ("resourceVersion=9&limit=1", {"p": 8}),
        ("resourceVersion=4&limit=1", 410),
        ("continue=x&limit=1", 410),
    ],
)
@pytest.mark.parametrize("is_cached", [True, False])
async def test_a_requested_version_is_treated_as_by_kube_apiserver(
    node: Node, query: str, shown: dict[str, int] | int, is_cached: bool
) -> None:
    if is_cached:
        node.keep(TARGET, listed(9, pod("p", 8)))
    else:
        node.hold(JSON_EVERYWHERE, 9, pod("p", 8))
    assert await node.names(f"{TARGET}?{query}") == shown


# -- lists of several pages ----------------------------------------------------------------------------------------

FIRST, SECOND, THIRD = (
    listed(9, pod("p", 3), token="1"),
    listed(9, pod("q", 4), token="2"),
    listed(9, pod("r", 5)),
)


async def test_a_stored_list_has_the_same_pages_as_in_the_cloud(node: Node) -> None:
    node.keep(TARGET, FIRST, SECOND, THIRD)
    for token, page in (("", FIRST), ("&continue=1", SECOND), ("&continue=2", THIRD)):
        assert await node.get(f"{TARGET}?limit=1{token}") == page
    assert await node.get(f"{TARGET}?limit=1&continue=3") == 410


async def test_a_list_without_a_limit_joins_the_stored_pages(node: Node) -> None:
    node.keep(TARGET, FIRST, SECOND, THIRD)
    assert await node.names(TARGET) == {"p": 3, "q": 4, "r": 5}
    tables = [listed(9, token="1", kind="Table"), listed(9, kind="Table")]
    node.keep(TARGET, *tables)
    assert await node.get(TARGET) is None, "the pages of a Table are not put together"
    assert await node.get(f"{TARGET}?limit=1") == tables[0]


async def test_pages_newer_than_the_copy_contain_local_writes(node: Node) -> None:
    store = node.hold(JSON_EVERYWHERE, 5, pod("q", 4))
    store.amend(raw(pod("q", 4, phase="Running")))
    node.keep(TARGET, FIRST, SECOND, THIRD)
    found = await node.get(f"{TARGET}?limit=1")
    assert isinstance(found, dict)
    assert [each.get("status") for each in found["items"]] == [None, {"phase": "Running"}, None]


@pytest.mark.parametrize("packed", [False, True])
async def test_a_stored_list_too_large_to_parse_is_sent_unmodified(node: Node, packed: bool) -> None:
    """Later local writes to its objects are not included."""
    store = node.hold(JSON_EVERYWHERE, 5, pod("p", 3))
    store.amend(raw(pod("p", 3, phase="Running")))
    body = raw(listed(9, pod("p", 3)))
    headers = {"content-type": JSON, **({"content-encoding": "gzip"} if packed else {})}
    node.answers.cache_response(
        asked("GET", TARGET).key(""), headers, gzip.compress(body) if packed else body
    )
    for limit, status in ((len(body), {"phase": "Running"}), (len(body) - 1, None)):
        with patch.object(cached_response, "MAX_LIST", limit):
            found = await node.get(TARGET)
        assert isinstance(found, dict)
        assert found["items"][0].get("status") == status


@pytest.mark.parametrize(("kind", "shown"), [("services", ["kept", "newer"]), ("pods", ["kept"])])
async def test_a_shared_resource_is_listed_from_its_source_if_that_is_newer(
    node: Node, kind: str, shown: list[str]
) -> None:
    """A pod once got an older stored list, whose version was too old for a watch: it got 410, and the same list
    again."""
    pod_identity, type_ = CloudIdentity("pod", "Bearer pod"), ResourceType("", "v1", kind)

    def made(name: str, version: int) -> Json:
        return service(name, version) if kind == "services" else pod(name, version, namespace="default")

    node.hold(ListWatch(type_, encoding=Encoding.JSON), 9, made("kept", 3), made("newer", 8))
    target = f"/api/v1/namespaces/default/{kind}"
    page = listed(4, made("kept", 3), kind=f"{made('x', 1)['kind']}List")
    node.keep(target, page, identity=pod_identity)
    found = await node.get(target, identity=pod_identity)
    assert isinstance(found, dict)
    assert [item["metadata"]["name"] for item in found["items"]] == shown


async def test_a_copy_of_another_identity_is_never_refetched_as_the_hub(tmp_path: Path) -> None:
    """After its permission was revoked, a pod once saw a new object, because its source had been restarted without a
    token."""
    services = ResourceType("", "v1", "services")
    pod, credentials = CloudIdentity("pod", "Bearer pod"), []
    store = Store()
    async with copies_in(tmp_path) as copies:
        copy = copies.copy("pod", ListWatch(services, "default", encoding=Encoding.JSON), store)
        fill(store, [service("web", 3)], 5)
        await settled(copy)
        copy.close()

        def client_of(identity: CloudIdentity) -> QueuedAnswers:
            credentials.append(identity.authorization)
            return QueuedAnswers(Unreachable("gone"))

        sources = Sources(CloudReads(client_of, lambda: False), unfiltered(), 300, copies)
        answers = CachedResponses(copies.access)
        reads = OfflineReads(sources, answers, AcceptedWrites(copies.access, answers, copies, ()), 5)
        target = "/api/v1/namespaces/default/services/web"
        found, hubs = [
            await reads.answer(each, asked("GET", target), read_of(target)) for each in (pod, HUB_IDENTITY)
        ]
        sources.close()
    assert found is not None
    assert found.status == 200
    assert hubs is None, "the hub has no copy of its own"
    assert set(credentials) == {"Bearer pod"}
