"""The user of a token and its permissions: the hub reviews them with the token itself, and caches them, longer while
offline."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import json
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pytest

from addons.requests.object_read import ObjectRead
from addons.views.known_callers import MAX_ANSWERS
from addons.views.reviews import MAX_TOKENS, PERMISSION_TTL, USER_PATH, USER_TTL, Reviews
from addons.views.watch_answer import CHECK_INTERVAL
from kube.errors import StatusError, unauthorized
from kube.http.access_review import PATH as ACCESS_PATH
from kube.http.client import ApiResponse, Client, Unreachable
from kube.json_type import Json
from kube.requests.request_info import parse_request
from tests.addons.requests.test_caller import jwt
from tests.addons.support.samples import read_of
from tests.support.clock import Clock

TOKEN = "Bearer secret-token"
MAX_AGE = 86400
LIST = read_of("/api/v1/namespaces/shop/services?resourceVersion=0")
WATCH = read_of("/api/v1/namespaces/shop/services?watch=true")
ALL_SLICES = read_of("/apis/discovery.k8s.io/v1/endpointslices")


class Cloud:
    """Answer reviews; raise `error` instead while it is set."""

    def __init__(self) -> None:
        self.allowed: object = True
        self.user: Json = {"username": "system:serviceaccount:shop:web", "groups": ["b", "a"]}
        self.error: Exception | None = None
        self.body: bytes | None = None
        self.asked: list[tuple[str, str, Json]] = []
        self.gate: asyncio.Event | None = None
        """Responses wait for it."""

    def client_of(self, authorization: str) -> Client:
        return cast(Client, StubClient(self, authorization))

    def answer(self, authorization: str, path: str, review: Json) -> bytes:
        self.asked.append((authorization, path, review))
        if self.error is not None:
            raise self.error
        status = {"userInfo": self.user} if path == USER_PATH else {"allowed": self.allowed}
        return self.body if self.body is not None else json.dumps({**review, "status": status}).encode()


class StubClient:
    """A client of that cloud with one Authorization header."""

    def __init__(self, cloud: Cloud, authorization: str) -> None:
        self._cloud = cloud
        self._authorization = authorization

    async def request(self, method: str, path: str, *, body: bytes, timeout: float = 0) -> ApiResponse:
        assert method == "POST"
        if self._cloud.gate is not None:
            await self._cloud.gate.wait()
        return ApiResponse(
            "application/json", self._cloud.answer(self._authorization, path, json.loads(body))
        )


@pytest.fixture
def cloud() -> Cloud:
    return Cloud()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def reviews(cloud: Cloud, clock: Clock) -> Reviews:
    return Reviews(cloud.client_of, MAX_AGE, clock=clock, wall_clock=clock)


async def code_of(ask: Callable[[], Any]) -> int:
    with pytest.raises(StatusError) as caught:
        await ask()
    return caught.value.code


async def test_the_user_of_a_token_is_reviewed_by_the_cloud(reviews: Reviews, cloud: Cloud) -> None:
    found = await reviews.user(TOKEN)
    assert json.loads(found) == ["system:serviceaccount:shop:web", ["a", "b"], "", {}]
    ((authorization, path, review),) = cloud.asked
    assert (authorization, path, review["kind"]) == (TOKEN, USER_PATH, "SelfSubjectReview")


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ({"uid": "of the service account made anew"}, False),
        ({"extra": {"scopes.example.com": ["read-only"]}}, False),
        ({"extra": {"authentication.kubernetes.io/credential-id": ["JTI=another token of it"]}}, True),
        ({"groups": ["a", "b"]}, True),
    ],
)
async def test_a_recreated_user_or_narrower_scope_is_another_user(
    reviews: Reviews, cloud: Cloud, other: Json, same: bool
) -> None:
    """This holds for each of the user's tokens, and for any order of its groups."""
    cloud.user = {**cloud.user, "uid": "u", "extra": {}}
    first = await reviews.user(TOKEN)
    cloud.user = {**cloud.user, **other}
    assert (await reviews.user("Bearer other") == first) is same


async def test_an_identity_is_never_that_of_the_hub(reviews: Reviews, cloud: Cloud) -> None:
    cloud.user = {}
    assert await reviews.user(TOKEN) != "", "the empty identity is the hub's own"


async def test_a_review_has_the_attributes_of_the_request(reviews: Reviews, cloud: Cloud) -> None:
    await reviews.may_read(TOKEN, WATCH)
    ((authorization, path, review),) = cloud.asked
    assert (authorization, path, review["kind"]) == (TOKEN, ACCESS_PATH, "SelfSubjectAccessReview")
    attributes = review["spec"]["resourceAttributes"]
    assert attributes == {
        "verb": "watch",
        "group": "",
        "version": "v1",
        "resource": "services",
        "subresource": "",
        "namespace": "shop",
        "name": "",
    }


@pytest.mark.parametrize("allowed", [False, None, "true", 1, {}])
async def test_only_an_explicit_allowed_is_a_permission(
    reviews: Reviews, cloud: Cloud, allowed: object
) -> None:
    cloud.allowed = allowed
    assert await code_of(lambda: reviews.may_read(TOKEN, LIST)) == 403


@pytest.mark.parametrize(
    ("read", "where"),
    [(LIST, 'services is forbidden: cannot list resource "services" in API group "" in the namespace "shop"'),
     (ALL_SLICES, "endpointslices.discovery.k8s.io is forbidden: cannot list resource")],
)  # fmt: skip
async def test_a_refusal_names_the_missing_permission(
    reviews: Reviews, cloud: Cloud, read: ObjectRead, where: str
) -> None:
    cloud.allowed = False
    with pytest.raises(StatusError) as caught:
        await reviews.may_read(TOKEN, read)
    assert caught.value.message.startswith(where)
    assert "secret-token" not in caught.value.message


async def test_a_review_is_cached_for_a_time(reviews: Reviews, cloud: Cloud, clock: Clock) -> None:
    await reviews.may_read(TOKEN, LIST)
    clock.now += PERMISSION_TTL - 1
    await reviews.may_read(TOKEN, LIST)
    assert len(cloud.asked) == 1
    clock.now += 1
    cloud.allowed = False
    assert await code_of(lambda: reviews.may_read(TOKEN, LIST)) == 403


async def test_a_review_is_valid_for_one_token_and_one_request(reviews: Reviews, cloud: Cloud) -> None:
    await reviews.may_read(TOKEN, LIST)
    cloud.allowed = False
    for token, info in (("Bearer other", LIST), (TOKEN, WATCH), (TOKEN, ALL_SLICES)):
        assert await code_of(functools.partial(reviews.may_read, token, info)) == 403
    await reviews.may_read(TOKEN, LIST)


@pytest.mark.parametrize("error", [Unreachable("no route"), StatusError(503, "ServiceUnavailable", "later")])
async def test_known_permissions_stay_valid_offline(
    reviews: Reviews, cloud: Cloud, clock: Clock, error: Exception
) -> None:
    known = await reviews.user(TOKEN)
    await reviews.may_read(TOKEN, LIST)
    cloud.error = error
    clock.now += MAX_AGE - 1
    assert await reviews.user(TOKEN) == known
    await reviews.may_read(TOKEN, LIST)


async def test_a_denial_stays_valid_offline(reviews: Reviews, cloud: Cloud, clock: Clock) -> None:
    cloud.allowed = False
    assert await code_of(lambda: reviews.may_read(TOKEN, LIST)) == 403
    cloud.error = Unreachable("no route")
    clock.now += MAX_AGE - 1
    assert await code_of(lambda: reviews.may_read(TOKEN, LIST)) == 403


async def test_an_unknown_token_is_refused_offline(reviews: Reviews, cloud: Cloud) -> None:
    cloud.error = Unreachable("no route")
    assert await code_of(lambda: reviews.user(TOKEN)) == 503
    assert await code_of(lambda: reviews.may_read(TOKEN, LIST)) == 503


async def test_a_token_that_the_cloud_does_not_know_gets_its_401(reviews: Reviews, cloud: Cloud) -> None:
    cloud.error = unauthorized("Unauthorized")
    assert await code_of(lambda: reviews.user(TOKEN)) == 401
    cloud.error = None
    assert await reviews.user(TOKEN), (
        "a 401 is not remembered: the token may be younger than the cloud's cache"
    )


async def test_a_token_that_the_cloud_has_refused_is_not_trusted_again_offline(
    reviews: Reviews, cloud: Cloud, clock: Clock
) -> None:
    """It was revoked while the link was up; a later outage must not make it valid again."""
    await reviews.may_read(TOKEN, LIST)
    clock.now += PERMISSION_TTL
    cloud.error = unauthorized("Unauthorized")
    assert await code_of(lambda: reviews.may_read(TOKEN, LIST)) == 401
    cloud.error = Unreachable("no route")
    assert await code_of(lambda: reviews.may_read(TOKEN, LIST)) == 503


async def test_the_clouds_responses_to_the_caller_count_as_reviews(reviews: Reviews, cloud: Cloud) -> None:
    cloud.error = Unreachable("no route")
    asked = {name: parse_request("GET", f"/api/v1/namespaces/shop/secrets/{name}") for name in ("a", "b")}
    version = parse_request("GET", "/version")
    reviews.learn(TOKEN, asked["a"], 200)
    reviews.learn(TOKEN, version, 200)
    await reviews.may(TOKEN, asked["a"])
    await reviews.may(TOKEN, version)
    assert await code_of(lambda: reviews.may(TOKEN, asked["b"])) == 503
    reviews.learn(TOKEN, asked["a"], 403)
    assert await code_of(lambda: reviews.may(TOKEN, asked["a"])) == 403
    reviews.learn(TOKEN, asked["b"], 401)
    for info in (asked["a"], version):
        assert await code_of(partial(reviews.may, TOKEN, info)) == 503, "the token is worth nothing"


async def test_a_non_resource_path_is_reviewed(reviews: Reviews, cloud: Cloud) -> None:
    cloud.allowed = False
    assert await code_of(lambda: reviews.may(TOKEN, parse_request("GET", "/version"))) == 403
    assert cloud.asked[0][2]["spec"] == {"nonResourceAttributes": {"verb": "get", "path": "/version"}}


async def test_a_used_review_is_not_evicted(reviews: Reviews, cloud: Cloud) -> None:
    """If the review of a token's user were evicted, all its other reviews would be lost."""
    await reviews.user(TOKEN)
    for number in range(MAX_ANSWERS):
        reviews.learn(TOKEN, parse_request("GET", f"/api/v1/namespaces/shop/secrets/{number}"), 200)
        await reviews.user(TOKEN)
    assert len(cloud.asked) == 1


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"{}"])
async def test_a_malformed_review_is_503(reviews: Reviews, cloud: Cloud, body: bytes) -> None:
    cloud.body = body
    assert await code_of(lambda: reviews.may_read(TOKEN, LIST)) == 503


async def test_concurrent_reviews_are_sent_once_and_survive_a_cancelled_caller(
    reviews: Reviews, cloud: Cloud
) -> None:
    """Hundreds of watches that open after an outage need the same review."""
    cloud.gate = asyncio.Event()
    asking = [asyncio.create_task(reviews.may_read(TOKEN, LIST)) for _ in range(3)]
    await asyncio.sleep(0)
    asking.pop(0).cancel()
    await asyncio.sleep(0)
    cloud.gate.set()
    await asyncio.gather(*asking)
    assert len(cloud.asked) == 1
    cloud.error = Unreachable("no route")
    found = await asyncio.gather(*(reviews.user(TOKEN) for _ in range(3)), return_exceptions=True)
    assert [each.code for each in found if isinstance(each, StatusError)] == [503] * 3


async def test_tokens_with_reviews_are_bounded_and_the_oldest_evicted(reviews: Reviews, cloud: Cloud) -> None:
    for number in range(MAX_TOKENS + 1):
        await reviews.user(f"Bearer {number}")
    assert len(reviews._answers) == MAX_TOKENS
    asked = len(cloud.asked)
    await reviews.user(f"Bearer {MAX_TOKENS}")
    assert len(cloud.asked) == asked, "the newest is still known"
    await reviews.user("Bearer 0")
    assert len(cloud.asked) == asked + 1


@pytest.mark.parametrize("allowed", [True, False])
async def test_one_token_evicts_no_review_of_another(reviews: Reviews, cloud: Cloud, allowed: bool) -> None:
    await reviews.may_read("Bearer other", LIST)
    cloud.allowed = allowed
    for number in range(MAX_ANSWERS + 10):
        with contextlib.suppress(StatusError):
            await reviews.may_read(TOKEN, read_of(f"/api/v1/namespaces/n{number}/services"))
    assert [len(answers) for answers in reviews._answers.values()] == [1, MAX_ANSWERS]
    cloud.error = Unreachable("no route")
    await reviews.may_read("Bearer other", LIST)


async def test_a_review_has_a_maximum_age_offline(reviews: Reviews, cloud: Cloud, clock: Clock) -> None:
    await reviews.user(TOKEN)
    await reviews.may_read(TOKEN, LIST)
    cloud.error = Unreachable("no route")
    clock.now += MAX_AGE
    assert await code_of(lambda: reviews.user(TOKEN)) == 503
    assert await code_of(lambda: reviews.may_read(TOKEN, LIST)) == 503


async def test_an_expired_token_is_refused_offline(reviews: Reviews, cloud: Cloud, clock: Clock) -> None:
    token = jwt({"exp": clock.now + 100})
    await reviews.user(token)
    await reviews.may_read(token, LIST)
    cloud.error = Unreachable("no route")
    clock.now += 99
    await reviews.may_read(token, LIST)
    clock.now += 1
    assert await code_of(lambda: reviews.may_read(token, LIST)) == 401
    assert await code_of(lambda: reviews.user(token)) == 401


async def test_a_stored_review_of_an_expired_token_is_not_used(
    reviews: Reviews, cloud: Cloud, clock: Clock
) -> None:
    """The node's clock may be wrong, so the cloud decides while it is up."""
    token = jwt({"exp": clock.now + 5})
    await reviews.may_read(token, LIST)
    clock.now += 5
    await reviews.may_read(token, LIST)
    assert len(cloud.asked) == 2
    cloud.error = unauthorized("Unauthorized")
    assert await code_of(lambda: reviews.may_read(token, LIST)) == 401


def test_a_revoked_right_is_noticed_within_a_minute() -> None:
    assert PERMISSION_TTL + max(CHECK_INTERVAL) < 60


async def test_the_user_of_a_token_is_reviewed_again_periodically(
    reviews: Reviews, cloud: Cloud, clock: Clock
) -> None:
    await reviews.user(TOKEN)
    clock.now += USER_TTL
    cloud.error = unauthorized("Unauthorized")
    assert await code_of(lambda: reviews.user(TOKEN)) == 401


async def test_reviews_store_no_token(reviews: Reviews) -> None:
    await reviews.user(TOKEN)
    await reviews.may_read(TOKEN, LIST)
    assert "secret-token" not in repr(reviews._answers)


async def test_a_permission_for_a_namespace_applies_to_each_object_in_it() -> None:
    clock, cloud = Clock(), Cloud()
    reviews = Reviews(cloud.client_of, MAX_AGE, clock=clock, wall_clock=clock)
    one, all_ = (parse_request("GET", f"/api/v1/namespaces/a/pods{each}") for each in ("/p", ""))
    await reviews.may_in_namespace(TOKEN, one)
    cloud.error = Unreachable("gone")
    other = parse_request("GET", "/api/v1/namespaces/a/pods/q")
    await reviews.may_in_namespace(TOKEN, other)
    assert await code_of(lambda: reviews.may_in_namespace(TOKEN, all_)) == 503, "a list is another right"
    elsewhere = parse_request("GET", "/api/v1/namespaces/b/pods/q")
    assert await code_of(lambda: reviews.may_in_namespace(TOKEN, elsewhere)) == 503


async def test_a_refusal_is_freed_after_it_is_raised() -> None:
    """It must not be part of a reference cycle, as the hub seldom collects those."""

    async def ask() -> str:
        raise unauthorized("who is that?")

    reviews = Reviews(lambda _: cast(Client, None), 0)
    references: list[weakref.ref[StatusError]] = []
    gc.disable()
    try:
        await reviews._shared(("token", ("get", "/")), ask)
    except StatusError as error:
        references.append(weakref.ref(error))
    finally:
        await asyncio.sleep(0)
        gc.enable()
    assert references[0]() is None
