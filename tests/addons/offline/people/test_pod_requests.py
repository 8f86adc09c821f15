"""Requests to kubelet during an outage: the permitted users, and kubelet's review of the hub's own user."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest

from addons.link.identities.kubelet import KubeletAccess
from addons.offline.cached_responses import CachedResponses
from addons.offline.people.pod_requests import (
    KUBELET_VERBS,
    PORT,
    REVIEW,
    REVIEWS,
    AtKubelet,
    PodRequests,
    kubelet_target,
)
from addons.requests.caller import Caller, CredentialSource
from addons.views.reviews import Reviews
from kube.errors import StatusError
from kube.http.client import Unreachable
from kube.json_type import Json
from kube.requests.request_info import RequestInfo, parse_request
from kube.store.store import Item, Store
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from tests.addons.support.copying import copies_in
from tests.addons.support.offline_parts import PROTOBUF, QueuedAnswers, asked
from tests.addons.support.refusals import refuses
from tests.addons.support.samples import fill
from tests.addons.views.test_reviews import TOKEN, Cloud
from tests.cloud.pki import Authority

TYPE = {"apiVersion": "v1", "kind": "Any"}
PERSON = Caller(CredentialSource.OWN, TOKEN)
LOG = "/api/v1/namespaces/a/pods/p/log?follow=true"
EXEC = "/api/v1/namespaces/a/pods/p/exec?command=ls"
ONE: Json = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main"}]}}
TWO: Json = {
    "metadata": {"name": "p"},
    "spec": {
        "initContainers": [{"name": "init"}],
        "containers": [{"name": "main"}, {"name": "side"}],
        "ephemeralContainers": [{"name": "debug"}],
    },
}


class Scene:
    def __init__(self, answers: CachedResponses, folder: Path) -> None:
        self.cloud = Cloud()
        self.objects: dict[str, Json] = {}
        access = KubeletAccess("n1", *(folder / each for each in ("certificate", "key", "authority")))
        for file in access[1:]:
            file.touch()
        self.access = access
        reviews = Reviews(self.cloud.client_of, 3600)
        self.requests = PodRequests(access, self.find, reviews, answers)

    def has(self, path: str, **fields: Json) -> None:
        self.objects[path] = {
            **TYPE,
            "metadata": {"name": path.rpartition("/")[2], "resourceVersion": "5"},
            **fields,
        }

    async def find(self, info: RequestInfo) -> list[Item]:
        assert info.type is not None
        found = self.objects.get(info.type.path(info.namespace, info.name))
        store = Store()
        fill(store, [found] if found else [], 5)
        return [*store]

    async def go(self, target: str, caller: Caller = PERSON) -> AtKubelet:
        return await self.requests.at_kubelet(caller, parse_request("GET", target), target)

    async def learn(self, target: str, caller: Caller = PERSON, status: int = 200) -> None:
        self.requests.learn(caller, parse_request("GET", target), status)
        await asyncio.gather(*self.requests._learning.values())


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with copies_in(tmp_path) as copies:
        made = Scene(CachedResponses(copies.access), tmp_path)
        made.has("/api/v1/namespaces/a/pods/p", spec={"nodeName": "n1", "containers": [{"name": "c"}]})
        yield made


async def code_of(scene: Scene, target: str, caller: Caller = PERSON) -> int:
    with pytest.raises(StatusError) as refused:
        await scene.go(target, caller)
    return refused.value.code


async def test_a_caller_retains_offline_the_permissions_that_the_cloud_gave(scene: Scene) -> None:
    await scene.learn(LOG)
    scene.cloud.error = Unreachable("gone")
    assert await scene.go(LOG) == AtKubelet(PORT, "/containerLogs/a/p/c?follow=true")
    assert await scene.go(EXEC) == AtKubelet(PORT, "/exec/a/p/c?command=ls")
    scene.has("/api/v1/nodes/n1", status={"daemonEndpoints": {"kubeletEndpoint": {"Port": 7}}})
    assert (await scene.go(LOG)).port == 7


async def test_a_missing_file_for_kubelet_is_reported_with_its_option(scene: Scene) -> None:
    """kubelet makes its serving certificate when it starts, so the hub cannot require it at its own start."""
    await scene.learn(LOG)
    scene.cloud.error = Unreachable("gone")
    scene.access.authority.unlink()
    with pytest.raises(
        StatusError, match=r"hub_kubelet_certificate_authority .*authority: No such"
    ) as raised:
        await scene.go(LOG)
    assert raised.value.code == 503
    scene.access.authority.touch()
    assert (await scene.go(LOG)).port == PORT


async def test_concurrent_requests_with_one_token_cause_a_single_review(scene: Scene) -> None:
    scene.cloud.gate = asyncio.Event()
    info = parse_request("GET", LOG)
    for _ in range(100):
        scene.requests.learn(PERSON, info, 200)
    assert len(scene.requests._learning) == 1
    scene.cloud.gate.set()
    await scene.learn(LOG)
    assert scene.requests._learning == {}


async def test_a_caller_refused_by_the_cloud_stays_refused_offline(scene: Scene) -> None:
    scene.cloud.allowed = False
    await scene.learn(LOG, status=403)
    scene.cloud.error = Unreachable("gone")
    assert await code_of(scene, LOG) == 403
    assert await code_of(scene, EXEC) == 403


async def test_an_unknown_caller_gets_503_until_the_cloud_is_back(scene: Scene) -> None:
    await scene.learn(LOG, status=401)
    assert scene.cloud.asked == [], "an answer that says nothing of the user is no reason to ask"
    scene.cloud.error = Unreachable("gone")
    assert await code_of(scene, LOG) == 503


@pytest.mark.parametrize(
    "caller",
    [
        Caller(CredentialSource.HUB),
        Caller(CredentialSource.NONE),
        Caller(CredentialSource.OWN, TOKEN, impersonates=True),
    ],
)
async def test_the_nodes_own_identity_and_impersonation_are_refused(scene: Scene, caller: Caller) -> None:
    await scene.learn(LOG)
    before = len(scene.cloud.asked)
    await scene.learn(LOG, caller)
    assert len(scene.cloud.asked) == before
    assert await code_of(scene, LOG, caller) == 403


@pytest.mark.parametrize("fields", [None, {"nodeName": "n2", "containers": [{"name": "c"}]}, {}])
async def test_a_pod_of_another_node_is_503(scene: Scene, fields: Json | None) -> None:
    scene.objects.clear()
    if fields is not None:
        scene.has("/api/v1/namespaces/a/pods/p", spec=fields)
    assert await code_of(scene, LOG) == 503


def test_without_a_certificate_requests_to_kubelet_are_unavailable() -> None:
    assert KubeletAccess.of("n1", None, Path("key"), Path("ca")) is None


def kubelet_path(target: str, pod: Json = ONE) -> str:
    info = parse_request("GET", f"/api/v1/namespaces/a/pods/p/{target}")
    return kubelet_target(info, target.partition("?")[2], pod)


@pytest.mark.parametrize(
    ("target", "wanted"),
    [
        ("log", "/containerLogs/a/p/main"),
        (
            "log?follow=true&previous=false&timestamps=1&tailLines=5&sinceTime=2026-01-01T00%3A00%3A00Z",
            "/containerLogs/a/p/main?follow=true&timestamps=true&tailLines=5&sinceTime=2026-01-01T00%3A00%3A00Z",
        ),
        ("log?insecureSkipTLSVerifyBackend=true&pretty=true", "/containerLogs/a/p/main"),
        (
            "exec?command=sh&command=-c&command=echo+a%26b&stdin=true&stdout=true&tty=0",
            "/exec/a/p/main?input=1&output=1&command=sh&command=-c&command=echo+a%26b",
        ),
        ("attach?stderr=true&stdout=1&tty=true", "/attach/a/p/main?error=1&output=1&tty=1"),
        ("portforward", "/portForward/a/p"),
        ("portforward?ports=8080", "/portForward/a/p?port=8080"),
    ],
)
def test_paths_and_parameters_are_translated_to_kubelets_api(target: str, wanted: str) -> None:
    found = kubelet_path(target)
    assert (found.partition("?")[0], sorted(found.partition("?")[2].split("&"))) == (
        wanted.partition("?")[0],
        sorted(wanted.partition("?")[2].split("&")),
    )
    assert [each for each in found.split("&") if "command" in each] == [
        each for each in wanted.split("&") if "command" in each
    ], "in their order"


@pytest.mark.parametrize("name", ["init", "main", "side", "debug"])
def test_a_pod_with_several_containers_requires_a_container_name(name: str) -> None:
    assert kubelet_path(f"log?container={name}&container=main", TWO) == f"/containerLogs/a/p/{name}"


@pytest.mark.parametrize(
    ("query", "said"),
    [("", "choose one of: [init main side debug]"), ("?container=no", "no is not valid for pod p")],
)
def test_an_unknown_container_is_refused(query: str, said: str) -> None:
    with pytest.raises(StatusError) as refused:
        kubelet_path(f"exec{query}", TWO)
    assert refused.value.code == 400
    assert said in refused.value.message


USER, GROUPS = "for-kubelet", ["nurses", "system:authenticated"]


async def no_pods(_info: RequestInfo) -> list[Item]:
    return []


def requests_of(access: KubeletAccess, answers: CachedResponses) -> PodRequests:
    """Build the requests of a node without access to logs."""
    return PodRequests(access, no_pods, Reviews(lambda _: QueuedAnswers(), 0), answers)


@pytest.fixture
async def reviews(tmp_path: Path) -> AsyncIterator[PodRequests]:
    """Build requests with a stored review that allows the first verb and denies the other."""
    certificate, key = Authority().issue_client(USER, GROUPS[:1]).write(tmp_path, "client")
    async with copies_in(tmp_path) as copies:
        answers = CachedResponses(copies.access)
        made = requests_of(KubeletAccess("n1", certificate, key, certificate), answers)
        for question, verb in zip(made.questions(), KUBELET_VERBS, strict=True):
            said = {**orjson.loads(question.body), "status": {"allowed": verb == KUBELET_VERBS[0]}}
            answers.cache_response(question.key, JSON_TYPE, orjson.dumps(said))
        yield made


JSON_TYPE = {"content-type": "application/json"}


@pytest.mark.parametrize(
    ("headers", "body"),
    [(JSON_TYPE, b"<html>"), (JSON_TYPE, b"{}"), (JSON_TYPE, b"[]"), ({"content-encoding": "gzip"}, b"{}")],
)
async def test_an_unreadable_stored_review_allows_nothing(
    reviews: PodRequests, headers: dict[str, str], body: bytes
) -> None:
    reviews._answers.cache_response(next(reviews.questions()).key, headers, body)
    with refuses(503):
        await allowed(reviews, spec())


def spec(user: str = USER, verb: str = KUBELET_VERBS[0], node: str = "n1", *groups: str) -> Json:
    """Return the spec of kubelet's SubjectAccessReview, with the groups in this order."""
    attributes = {"verb": verb, "version": "v1", "resource": "nodes", "subresource": "proxy", "name": node}
    return {
        "user": user,
        "groups": [*reversed(GROUPS), *groups],
        "extra": {"authentication.kubernetes.io/credential-id": ["X509SHA256=1"]},
        "resourceAttributes": attributes,
    }


async def allowed(reviews: PodRequests, given: Json) -> bool:
    answer = await reviews.review(asked("POST", REVIEWS, {**REVIEW, "spec": given}))
    assert (answer.status, type(answer.body)) == (201, bytes)
    assert isinstance(answer.body, bytes)
    found = orjson.loads(answer.body)
    assert found["spec"] == given
    return bool(found["status"]["allowed"])


async def test_the_last_review_by_the_cloud_decides(reviews: PodRequests) -> None:
    assert [await allowed(reviews, spec(verb=verb)) for verb in KUBELET_VERBS] == [True, False]


async def test_a_review_in_protobuf_gets_the_same_result(reviews: PodRequests) -> None:
    def text(number: int, value: bytes) -> bytes:
        return bytes([number << 3 | 2, len(value)]) + value

    attributes = b"".join(
        text(number, value)
        for number, value in ((2, b"get"), (4, b"v1"), (5, b"nodes"), (6, b"proxy"), (7, b"n1"))
    )
    body = text(1, attributes) + text(3, USER.encode()) + b"".join(text(4, each.encode()) for each in GROUPS)
    wrapped = codec_for(Encoding.PROTOBUF).encode_single(REVIEW["apiVersion"], REVIEW["kind"], text(2, body))
    answer = await reviews.review(asked("POST", REVIEWS, wrapped, content_type=PROTOBUF))
    assert isinstance(answer.body, bytes)
    assert orjson.loads(answer.body)["status"] == {"allowed": True}


@pytest.mark.parametrize(
    "other",
    [
        spec("somebody"),
        spec(verb="delete"),
        spec(USER, "get", "n2"),
        spec(USER, "get", "n1", "system:masters"),
        {},
    ],
)
async def test_a_review_of_another_subject_or_resource_is_503(reviews: PodRequests, other: Json) -> None:
    with refuses(503):
        await allowed(reviews, other)


async def test_an_unreadable_certificate_sends_no_reviews(tmp_path: Path) -> None:
    access = KubeletAccess("n1", *(tmp_path / each for each in ("no", "none", "nothing")))
    async with copies_in(tmp_path) as copies:
        assert [*requests_of(access, CachedResponses(copies.access)).questions()] == []
