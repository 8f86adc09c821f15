"""Callers in any order: none gets a response that the cloud would refuse it, whoever asked before."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st

from addons.requests.caller import Caller, CredentialSource
from addons.requests.route_decision import RouteKind
from addons.views import reviews
from kube.errors import StatusError
from kube.requests.request_info import RequestInfo
from tests.addons.support.hub_world import HUB_TOKEN, HubWorld
from tests.addons.support.samples import HUB, NOBODY, secret, service
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.access import User

CALLERS = {
    "hub": HUB,
    "a": Caller(CredentialSource.OWN, "Bearer a"),
    "b": Caller(CredentialSource.OWN, "Bearer b"),
    "nobody": NOBODY,
}
PODS = ("a", "b")


class Right(NamedTuple):
    """A permission in a grant; "" means every namespace."""

    resource: str
    namespace: str


RIGHTS = (Right("services", ""), Right("services", "one"), Right("secrets", "one"), Right("secrets", "two"))


class World:
    def __init__(self, cloud: ScriptableCloud) -> None:
        self.cloud = cloud
        self.rights: dict[str, set[Right]] = {who: set() for who in PODS}
        cloud.access.tokens[HUB_TOKEN] = User("hub")
        for who in PODS:
            cloud.access.tokens[who] = User(who)
            cloud.access.allowed[who] = partial(self.may, who)
        for namespace in ("one", "two"):
            cloud.store.create({**service("web"), "metadata": {"name": "web", "namespace": namespace}})
            cloud.store.create(secret(namespace=namespace))

    def may(self, who: str, info: RequestInfo) -> bool:
        if info.type is None or info.type.group:
            return True  # SelfSubjectAccessReviews
        return bool(
            {Right(info.type.resource, ""), Right(info.type.resource, info.namespace)} & self.rights[who]
        )

    async def check(self, parts: HubWorld, who: str, target: str, component: str) -> None:
        """Send a request, and check that the cloud would give the same response."""
        try:
            route = parts.context(target, component, caller=CALLERS[who]).route
            if route is None or route.kind is not RouteKind.VIEW:
                return  # the request is relayed
            code, found = await parts.ask(target, component, caller=CALLERS[who])
        except StatusError as error:
            code, found = error.code, {}
        _, _, rest = target.partition("/v1/")
        path = rest.partition("?")[0].split("/")
        asked = Right(path[-1], path[1] if len(path) > 1 else "")
        if who == "hub":
            expected = 200
        elif who == "nobody" or who not in self.cloud.access.tokens:
            expected = 401
        else:
            expected = 200 if {asked, Right(asked.resource, "")} & self.rights[who] else 403
        assert code == expected, (who, target, found)
        if code == 200 and asked.namespace:
            assert {each["metadata"]["namespace"] for each in found["items"]} == {asked.namespace}


type Step = tuple[str, int, int]


NAMES = ("ask", "ask", "ask", "ask", "grant", "grant", "revoke", "delete account", "sweep")
STEPS = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 7), st.integers(0, 7)), max_size=40)


@settings(max_examples=25)
@given(STEPS)
@example(
    [
        ("ask", 0, 2),
        ("ask", 1, 2),
        ("grant", 0, 2),
        ("ask", 1, 2),
        ("ask", 2, 2),
        ("revoke", 0, 2),
        ("ask", 1, 2),
    ]
)
@example(
    [("grant", 0, 0), ("ask", 1, 0), ("delete account", 0, 0), ("ask", 1, 0), ("ask", 0, 0), ("ask", 3, 0)]
)
def test_no_caller_gets_objects_that_the_cloud_would_refuse(steps: list[Step]) -> None:
    targets = (
        "/api/v1/services?resourceVersion=0",
        "/api/v1/namespaces/one/services?resourceVersion=0",
        "/api/v1/namespaces/one/secrets?resourceVersion=0",
        "/api/v1/namespaces/two/secrets?resourceVersion=0",
        "/api/v1/secrets?resourceVersion=0&labelSelector=!x",
    )

    async def play() -> None:
        async with ScriptableCloud() as cloud:
            world = World(cloud)
            async with HubWorld(cloud) as parts:
                parts.set_rules({"cache_agents": "cached", "filter_discardcloudservice": "reader/services"})
                asking: list[asyncio.Task[None]] = []
                for what, one, other in steps:
                    who, right = PODS[one % 2], RIGHTS[other % len(RIGHTS)]
                    if what != "ask":
                        await asyncio.gather(*asking)
                        asking.clear()
                    match what:
                        case "ask":
                            caller, target = list(CALLERS)[one % 4], targets[other % len(targets)]
                            component = "reader" if "services" in target and one + other & 1 else "cached"
                            asking.append(asyncio.create_task(world.check(parts, caller, target, component)))
                        case "grant":
                            world.rights[who].add(right)
                        case "revoke":
                            world.rights[who].discard(right)
                        case "delete account":
                            cloud.access.tokens.pop(who, None)
                        case "sweep":
                            parts.sources._sweep()
                await asyncio.gather(*asking)

    @contextmanager
    def nothing_remembered() -> Iterator[None]:
        saved = reviews.PERMISSION_TTL, reviews.REFUSAL_TTL, reviews.USER_TTL
        reviews.PERMISSION_TTL = reviews.REFUSAL_TTL = reviews.USER_TTL = 0.0
        try:
            yield
        finally:
            reviews.PERMISSION_TTL, reviews.REFUSAL_TTL, reviews.USER_TTL = saved

    with nothing_remembered():
        asyncio.run(play())
