"""Discovery is cached before any request; lists are built from copies in a form that the client accepts."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import orjson
import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from addons.link.health import Cloud, ServerHealth
from addons.link.servers import parse_server
from addons.offline.cached_responses import CachedResponses
from addons.offline.offline_request import OfflineRequest
from addons.offline.people.cached_discovery import INTERVAL, Discovery, Question
from addons.offline.people.forms import first_form, partial_list
from addons.requests.answers import Answer
from addons.requests.offline_policy import AGGREGATED, DISCOVERY_PATHS
from addons.views.source import Source
from kube.concurrency.notifier import Notifier
from kube.http.client import Client, RawResponse, Unreachable
from kube.json_type import Json
from kube.reflector.list_watch import ListWatch
from kube.requests.request_info import ResourceType
from kube.store.store import Store
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from tests.addons.support.copying import copies_in
from tests.addons.support.observed import until
from tests.addons.support.offline_parts import JSON, asked
from tests.addons.support.refusals import refuses
from tests.addons.support.samples import fill, read_of
from tests.kube.support import recorded
from tests.kube.support.answering import AnsweringClient, Asked
from tests.support.objects import obj

KUBECTL = f"{AGGREGATED},{AGGREGATED.replace('v=v2;', 'v=v2beta1;')},{JSON}"


class Api(AnsweringClient):
    """A cloud whose discovery responses have an ETag."""

    def __init__(self) -> None:
        super().__init__()
        self.is_gone = False
        self.etag = '"0"'
        self.refused: frozenset[str] = frozenset()
        self.refusal = 403
        self.answered: list[tuple[str, int]] = []
        self.asked: list[str] = []
        self.is_old = False
        """An older server, which has only unaggregated discovery."""

    async def answer_relayed(self, asked: Asked) -> RawResponse:
        self.asked.append(asked.path)
        if self.is_gone:
            raise Unreachable("gone")
        form = DISCOVERY_PATHS.get(asked.path, JSON)
        if asked.path in self.refused:
            return RawResponse(self.refusal, CIMultiDictProxy(CIMultiDict()), b"")
        if self.is_old:
            if JSON not in asked.headers["Accept"].split(","):
                return RawResponse(406, CIMultiDictProxy(CIMultiDict()), b"")
            form = JSON
        has = {"etag": self.etag} if form is AGGREGATED else {}
        status = 304 if has and asked.headers.get("If-None-Match") == self.etag else 200
        self.answered.append((asked.path, status))
        typed = CIMultiDict({"content-type": form, "content-encoding": "gzip", **has})
        document = {"kind": "APIGroupList", "apiVersion": "v1", "of": f"{asked.path} {self.etag}"}
        body = gzip.compress(orjson.dumps(document))
        return RawResponse(status, CIMultiDictProxy(typed), body)


def request_of(answer: Answer) -> str:
    assert "content-encoding" not in answer.headers
    assert isinstance(answer.body, bytes)
    return str(orjson.loads(answer.body)["of"])


class DiscoveryScene:
    def __init__(self, answers: CachedResponses) -> None:
        self.api, self.changed, self.is_up = Api(), Notifier(), True
        self.discovery = Discovery(self.api, answers, cast(Cloud, self))
        self.task = asyncio.create_task(self.discovery.run())

    async def ask(self, target: str, accept: str | None = KUBECTL) -> str | None:
        found = await self.discovery.answer(asked("GET", target, accept=accept))
        return request_of(found) if found is not None else None

    async def wait_until_cached(self, target: str) -> None:
        """Return when discovery is cached. Polls: the disk's thread works in real time, without notifications."""
        while await self.ask(target) is None:  # noqa: ASYNC110 - as said above
            await asyncio.sleep(0.01)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[DiscoveryScene]:
    async with copies_in(tmp_path) as copies:
        made = DiscoveryScene(CachedResponses(copies.access))
        yield made
        made.task.cancel()


@pytest.mark.looptime
async def test_discovery_is_cached_before_the_first_request(scene: DiscoveryScene) -> None:
    await scene.wait_until_cached("/apis")
    assert [await scene.ask(path) for path in DISCOVERY_PATHS] == [f'{path} "0"' for path in DISCOVERY_PATHS]
    assert await scene.ask("/version?timeout=32s", None) == '/version "0"'
    for target, accept in (("/version", Encoding.PROTOBUF.value), ("/apis", "text/html")):
        with refuses(406):
            await scene.ask(target, accept)


@pytest.mark.looptime
@pytest.mark.parametrize(("target", "accept"), [("/apis/apps/v1", KUBECTL), ("/healthz", JSON)])
async def test_a_discovery_path_that_is_not_cached_is_503(
    scene: DiscoveryScene, target: str, accept: str | None
) -> None:
    await asyncio.sleep(1)
    assert await scene.ask(target, accept) is None


async def test_unaggregated_discovery_of_an_older_server_is_cached(tmp_path: Path) -> None:
    """The hub once repeated its request for aggregated discovery, which such a server refuses with 406."""
    async with copies_in(tmp_path) as copies:
        api = Api()
        api.is_old = True
        cloud = Cloud([ServerHealth(parse_server("https://a"))], "priority")
        made = Discovery(api, CachedResponses(copies.access), cloud)
        assert await made._renew()
        found = await made.answer(asked_for("/apis"))
        assert found is not None
        assert request_of(found) == '/apis "0"'
        packed = await made.answer(asked("GET", "/apis", accept=Encoding.PROTOBUF))
        assert packed is not None
        assert packed.headers["Content-Type"] == Encoding.PROTOBUF
        with refuses(406):  # such a server has nothing for a client that takes that form alone
            await made.answer(asked("GET", "/apis", accept=AGGREGATED))


@pytest.mark.looptime
async def test_a_corrupt_gzip_response_is_not_served(scene: DiscoveryScene) -> None:
    await scene.wait_until_cached("/apis")
    scene.task.cancel()
    question = Question("GET", "/apis", DISCOVERY_PATHS["/apis"])
    scene.discovery._answers.cache_response(question.key, {"content-encoding": "gzip"}, b"no gzip")
    assert await scene.ask("/apis") is None


async def test_unchanged_discovery_is_not_transferred_again(scene: DiscoveryScene) -> None:
    scene.task.cancel()
    answered = scene.api.answered
    for etag, statuses in (('"1"', [200, 200, 200]), ('"1"', [200, 304, 304]), ('"2"', [200, 200, 200])):
        answered.clear()
        scene.api.etag = etag
        assert await scene.discovery._renew()
        assert answered == list(zip(DISCOVERY_PATHS, statuses, strict=True))


@pytest.mark.looptime
async def test_a_restart_or_a_reconnect_does_not_fetch_discovery_again(tmp_path: Path) -> None:
    """Each once cost 1.1 KB, although discovery is refreshed hourly."""
    async with copies_in(tmp_path) as copies:
        answers = CachedResponses(copies.access)
        first = DiscoveryScene(answers)
        await first.wait_until_cached("/apis")
        for _ in range(3):
            first.changed.notify()
            await asyncio.sleep(1)
        assert len(first.api.answered) == len(DISCOVERY_PATHS)
        await answers.written()
        first.task.cancel()
    async with copies_in(tmp_path) as copies:
        answers = CachedResponses(copies.access)
        await answers.open()
        await until(lambda: len(answers.index) >= len(DISCOVERY_PATHS), INTERVAL)
        second = DiscoveryScene(answers)
        await asyncio.sleep(INTERVAL / 2)
        assert second.api.answered == []
        answers.forget_all()
        second.changed.notify()
        await second.wait_until_cached("/apis")
        assert len(second.api.answered) == len(DISCOVERY_PATHS), "a restored cloud is asked"
        await asyncio.sleep(INTERVAL + 1)
        assert len(second.api.answered) == 2 * len(DISCOVERY_PATHS)
        second.task.cancel()


@pytest.mark.looptime
async def test_discovery_is_fetched_when_the_cloud_becomes_available(tmp_path: Path) -> None:
    async with copies_in(tmp_path) as copies:
        scene = DiscoveryScene(CachedResponses(copies.access))
        scene.is_up, scene.api.is_gone = False, True
        await asyncio.sleep(INTERVAL)
        assert scene.api.answered == []
        scene.is_up, scene.api.is_gone = True, False
        scene.changed.notify()
        await scene.wait_until_cached("/apis")
        scene.task.cancel()


async def test_a_404_from_a_gateway_does_not_delete_cached_discovery(tmp_path: Path) -> None:
    async with copies_in(tmp_path) as copies:
        api = Api()
        made = Discovery(
            api, CachedResponses(copies.access), Cloud([ServerHealth(parse_server("https://a"))], "priority")
        )
        assert await made._renew()
        api.refused, api.refusal = frozenset(DISCOVERY_PATHS), 404
        assert await made._renew()
        assert await made.answer(asked_for("/apis")) is not None


async def test_a_refused_request_is_removed_and_the_renewal_continues(tmp_path: Path) -> None:
    async with copies_in(tmp_path) as copies:
        answers, api = CachedResponses(copies.access), Api()
        further = [Question("POST", "/reviews", JSON, each) for each in (b"1", b"2")]
        made = Discovery(
            api, answers, Cloud([ServerHealth(parse_server("https://a"))], "priority"), lambda: further
        )
        assert await made._renew()
        assert [await answers.get(each.key) is not None for each in further] == [True, True]
        api.refused = frozenset({"/version", "/reviews"})
        assert await made._renew()
        assert [await answers.get(each.key) for each in further] == [None, None]
        assert await made.answer(asked_for("/version")) is None
        assert await made.answer(asked_for("/apis")) is not None


REVIEW = Question("POST", "/reviews", JSON)


@pytest.mark.parametrize(
    ("given", "of_cloud"),
    [
        ((*DISCOVERY_PATHS,), ["/reviews"]),
        (("/version",), ["/api", "/apis", "/reviews"]),
        ((), [*DISCOVERY_PATHS, "/reviews"]),
    ],
)
async def test_a_follower_reads_discovery_from_the_cloud_if_its_leader_lacks_it(
    tmp_path: Path, given: tuple[str, ...], of_cloud: list[str]
) -> None:
    """A leader of an earlier version has no discovery, and is asked only once, as it counts each refusal."""
    async with copies_in(tmp_path) as copies:
        answers, api, leader = CachedResponses(copies.access), Api(), Api()
        leader.refused = frozenset(DISCOVERY_PATHS) - {*given}
        made = Discovery(
            api, answers, Cloud([ServerHealth(parse_server("https://a"))], "priority"), lambda: [REVIEW]
        )

        async def chosen() -> Client:
            return leader

        assert await made._renew(chosen)
        assert api.asked == of_cloud
        assert len(leader.asked) == min(len(given) + 1, len(DISCOVERY_PATHS))
        for path in DISCOVERY_PATHS:
            found = await made.answer(asked_for(path))
            assert found is not None
            assert request_of(found) == f'{path} "0"'


async def test_an_unreachable_leader_does_not_delay_discovery(tmp_path: Path) -> None:
    async with copies_in(tmp_path) as copies:
        answers, api, leader = CachedResponses(copies.access), Api(), Api()
        leader.is_gone = True
        made = Discovery(api, answers, Cloud([ServerHealth(parse_server("https://a"))], "priority"))

        async def chosen() -> Client:
            return leader

        assert await made._renew(chosen)
        assert (leader.asked, api.asked) == (["/version"], [*DISCOVERY_PATHS])


@pytest.mark.looptime
async def test_additional_cached_requests_are_renewed_after_an_outage(tmp_path: Path) -> None:
    """The hub's permissions at kubelet may have changed during the outage."""
    async with copies_in(tmp_path) as copies:
        answers, api, server = CachedResponses(copies.access), Api(), ServerHealth(parse_server("https://a"))
        cloud = Cloud([server], "priority")
        made = Discovery(api, answers, cloud, lambda: [Question("POST", "/reviews", JSON)])
        running = asyncio.create_task(made.run())
        await asyncio.sleep(1)
        asked = [path for path, _ in api.answered]
        assert asked == [*DISCOVERY_PATHS, "/reviews"]
        server.failed("cut")
        cloud.changed.notify()
        await asyncio.sleep(1)
        for _ in range(3):
            server.succeeded()
        cloud.changed.notify()
        await asyncio.sleep(1)
        assert [path for path, _ in api.answered] == [*asked, "/reviews"]
        running.cancel()


def asked_for(target: str) -> OfflineRequest:
    return asked("GET", target, accept=KUBECTL)


TABLE = f"{Encoding.JSON};as=Table;v=v1;g=meta.k8s.io"
METADATA = f"{Encoding.JSON};as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
PODS = ListWatch(ResourceType("", "v1", "pods"))


def pod(name: str, version: int, namespace: str = "a", phase: str = "Running") -> Json:
    return obj("Pod", name, namespace, version, labels={"app": name}, status={"phase": phase})


def store_of(version: int, *pods: Json) -> Store:
    store = Store()
    fill(store, pods, version, kind="Pod")
    return store


async def listed(target: str, *stores: Store, accept: str = "application/json") -> list[str] | None:
    """Return the names in a list, each with its version."""

    async def sources() -> AsyncIterator[tuple[ListWatch, Source]]:
        for store in stores:
            yield PODS, cast(Source, SimpleNamespace(store=store))

    listing = await partial_list(sources(), read_of(target, accept))
    if listing is None:
        return None
    body = orjson.loads(bytes(listing.body(listing.formed(listing.items))))
    return [f"{each['metadata']['name']} {each['metadata']['resourceVersion']}" for each in body["items"]]


async def test_a_list_has_each_object_from_its_newest_copy() -> None:
    newer, older = store_of(9, pod("p", 8)), store_of(5, pod("p", 4), pod("q", 3))
    assert await listed("/api/v1/pods", newer, older) == ["p 8", "q 3"]


async def test_copies_in_both_encodings_are_merged_into_one_list() -> None:
    of_protobuf = recorded.obj("pods.single", Encoding.PROTOBUF)
    protobuf = Store()
    protobuf.replace(codec_for(Encoding.PROTOBUF), "v1", "Pod", 9, [of_protobuf.encode()])
    found = await listed("/api/v1/pods", protobuf, store_of(5, pod("zzz", 4, "zzz")))
    assert found == [f"{of_protobuf.name} {of_protobuf.version}", "zzz 4"]


@pytest.mark.parametrize(
    ("target", "names"),
    [
        ("/api/v1/pods", ["p 3", "q 4", "p 5"]),
        ("/api/v1/namespaces/b/pods", ["p 5"]),
        ("/api/v1/pods?labelSelector=app%3Dq", ["q 4"]),
        ("/api/v1/pods?fieldSelector=status.phase%3DPending", ["q 4"]),
        ("/api/v1/pods?fieldSelector=status.phase!%3DPending,spec.nodeName%3D", ["p 3", "p 5"]),
    ],
)
async def test_a_list_of_pods_applies_the_selectors_of_the_request(target: str, names: list[str]) -> None:
    store = store_of(9, pod("p", 3), pod("q", 4, phase="Pending"), pod("p", 5, "b"))
    assert await listed(target, store) == names


async def test_a_list_without_a_copy_in_an_acceptable_form_is_unavailable() -> None:
    assert await listed("/api/v1/pods") is None
    assert await listed("/api/v1/pods", store_of(9), accept="application/vnd.kubernetes.protobuf") is None


METADATA_IN_PROTOBUF = f"{Encoding.PROTOBUF};as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


@pytest.mark.parametrize(
    ("encoding", "kind", "accept", "form"),
    [
        (Encoding.PROTOBUF, "Service", Encoding.PROTOBUF, "whole"),
        (Encoding.PROTOBUF, "Service", Encoding.JSON, "whole as JSON"),
        (Encoding.PROTOBUF, "Service", METADATA, "metadata as JSON"),
        (Encoding.PROTOBUF, "Service", f"{TABLE},{Encoding.JSON}", "Table v1 with Metadata"),
        (Encoding.PROTOBUF, "Service", f"{Encoding.PROTOBUF},{Encoding.JSON}", "whole"),
        (Encoding.PROTOBUF, "Odd", f"{TABLE},{Encoding.JSON}", None),
        (Encoding.JSON, "Odd", f"{TABLE},{Encoding.JSON}", "Table v1 with Metadata"),
        (Encoding.JSON, "Service", f"{Encoding.PROTOBUF},{Encoding.JSON}", "whole"),
        (Encoding.JSON, "Service", Encoding.PROTOBUF, "whole as PROTOBUF"),
        (Encoding.JSON, "Odd", Encoding.PROTOBUF, None),
        (Encoding.JSON, "Odd", METADATA_IN_PROTOBUF, "metadata as PROTOBUF"),
    ],
)
def test_the_first_acceptable_form_that_the_copy_allows_is_used(
    encoding: Encoding, kind: str, accept: str, form: str | None
) -> None:
    store, read = Store(), read_of("/api/v1/services", accept)
    raws = [recorded.single("services.single", encoding)[2]] if kind == "Service" else []
    store.replace(codec_for(encoding), "v1", kind, 9, raws)
    found = first_form(read.accepted, read, store)
    assert (found.name if found is not None else None) == form
