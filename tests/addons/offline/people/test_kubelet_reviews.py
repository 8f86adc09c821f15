"""kubelet's question about the hub's own user is answered from the cloud's last word, and no other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest

from addons.link.identities.kubelet import KubeletAccess
from addons.offline.cached_responses import CachedResponses
from addons.offline.people.pod_requests import KUBELET_VERBS, REVIEW, REVIEWS, PodRequests
from addons.views.reviews import Reviews
from kube.json_type import Json
from kube.requests.request_info import RequestInfo
from kube.store.store import Item
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from tests.addons.support.copying import copies_in
from tests.addons.support.offline_parts import PROTOBUF, Told, asked
from tests.addons.support.refusals import refuses
from tests.cloud.pki import Authority

USER, GROUPS = "for-kubelet", ["nurses", "system:authenticated"]


async def nothing(_info: RequestInfo) -> list[Item]:
    return []


def requests_of(access: KubeletAccess, answers: CachedResponses) -> PodRequests:
    """On a node where nobody asks for logs."""
    return PodRequests(access, nothing, Reviews(lambda _: Told(), 0), answers)


@pytest.fixture
async def reviews(tmp_path: Path) -> AsyncIterator[PodRequests]:
    """With a yes for the first verb, and a no for the other."""
    certificate, key = Authority().issue_client(USER, GROUPS[:1]).write(tmp_path, "client")
    async with copies_in(tmp_path) as copies:
        answers = CachedResponses(copies.access)
        made = requests_of(KubeletAccess("n1", certificate, key, certificate), answers)
        for question, verb in zip(made.questions(), KUBELET_VERBS, strict=True):
            said = {**orjson.loads(question.body), "status": {"allowed": verb == KUBELET_VERBS[0]}}
            answers.keep(question.key, {"content-type": "application/json"}, orjson.dumps(said))
        yield made


def spec(user: str = USER, verb: str = KUBELET_VERBS[0], node: str = "n1", *groups: str) -> Json:
    """As kubelet asks, with the groups in any order."""
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


async def test_the_clouds_last_word_counts(reviews: PodRequests) -> None:
    assert [await allowed(reviews, spec(verb=verb)) for verb in KUBELET_VERBS] == [True, False]


async def test_a_question_in_protobuf_is_the_same(reviews: PodRequests) -> None:
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
async def test_nobody_else_is_told_anything(reviews: PodRequests, other: Json) -> None:
    with refuses(503):
        await allowed(reviews, other)


async def test_a_certificate_that_cannot_be_read_asks_nothing(tmp_path: Path) -> None:
    access = KubeletAccess("n1", *(tmp_path / each for each in ("no", "none", "nothing")))
    async with copies_in(tmp_path) as copies:
        assert [*requests_of(access, CachedResponses(copies.access)).questions()] == []
