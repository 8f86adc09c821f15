"""Writes without the cloud: the handler of each, the identities that may send it, and the order of writes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from addons.offline.writes.journal_entries import StatusEntry
from addons.offline.writes.offline_writes import MAX_WRITE
from addons.requests.answers import Answer
from addons.requests.caller import Caller
from addons.requests.cloud_identity import HUB_IDENTITY, CloudIdentity
from kube.errors import StatusError
from kube.json_type import Json
from kube.requests.request_info import parse_request
from tests.addons.support.copying import copies_in
from tests.addons.support.offline_parts import JSON, STRATEGIC, asked, read
from tests.addons.support.offline_world import OfflineWorld, open_world
from tests.addons.support.samples import HUB, POD, node, raw
from tests.support.objects import obj

NODE = "/api/v1/nodes/n1"
EVENTS = "/api/v1/namespaces/a/events"
PODS = "/api/v1/namespaces/a/pods"


class World(OfflineWorld):
    """The node while it has no cloud, and its clients' writes."""

    async def send(
        self,
        method: str,
        target: str,
        body: Json | bytes = b"{}",
        caller: Caller = HUB,
        content_type: str = JSON,
    ) -> Answer:
        identity = HUB_IDENTITY if caller is HUB else CloudIdentity(USER, POD.authorization)
        return await self.writes.answer(
            caller, identity, asked(method, target, body, content_type=content_type)
        )

    async def refusal(self, *args: object, **how: object) -> int:
        with pytest.raises(StatusError) as refused:
            await self.send(*args, **how)  # type: ignore[arg-type]  # passed on as they are
        assert not self.journal.statuses
        assert not self.journal.events
        return refused.value.code

    def has_node(self) -> None:
        self.keep(NODE, {**node("n1", 7), "status": {}})


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with copies_in(tmp_path) as copies, open_world(World(copies)) as made:
        yield made


USER = "the pod's user"


def event(name: str = "e") -> Json:
    return {"apiVersion": "v1", "kind": "Event", "metadata": {"name": name}}


MIRROR_POD: Json = obj("Pod", "p", annotations={"kubernetes.io/config.mirror": "x"})
REPORT: Json = {"status": {"phase": "Running"}}


async def test_a_report_an_event_and_its_patch_are_accepted_and_journaled(world: World) -> None:
    world.has_node()
    assert (await world.send("PATCH", f"{NODE}/status", REPORT, content_type=STRATEGIC)).status == 200
    assert (await world.send("POST", EVENTS, event())).status == 201
    assert (await world.send("PATCH", f"{EVENTS}/e", {"count": 2}, content_type=STRATEGIC)).status == 200
    assert list(world.journal.statuses) == [NODE]
    assert [each.method for each in world.journal.events.values()] == ["POST", "PATCH"]


async def test_a_mirror_pod_is_echoed_and_not_journaled(world: World) -> None:
    """kubelet creates it again if the cloud does not have it."""
    answer = await world.send("POST", PODS, MIRROR_POD)
    assert isinstance(answer.body, bytes)
    assert (answer.status, read(answer.body).name, read(answer.body).namespace) == (201, "p", "a")
    assert not world.journal.events


async def test_creating_an_ordinary_pod_is_refused_without_a_cloud(world: World) -> None:
    assert (
        await world.refusal("POST", PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}})
        == 503
    )


@pytest.mark.parametrize(
    ("method", "target", "body"), [("PATCH", f"{NODE}/status", REPORT), ("POST", PODS, MIRROR_POD)]
)
async def test_a_write_with_a_token_and_a_dry_run_are_503_offline(
    world: World, method: str, target: str, body: Json
) -> None:
    """A replay has the hub's permissions, which may exceed the writer's."""
    world.has_node()
    kind = STRATEGIC if method == "PATCH" else JSON
    assert await world.refusal(method, target, body, POD, kind) == 503
    assert await world.refusal(method, f"{target}?dryRun=All", body, HUB, kind) == 503


async def test_an_event_of_a_caller_with_a_token_is_journaled_under_that_caller(world: World) -> None:
    """kube-proxy's event: the cloud authorizes it at the replay; a dry run needs the cloud at once."""
    assert (await world.send("POST", EVENTS, event(), POD)).status == 201
    assert (await world.send("PATCH", f"{EVENTS}/e", {"count": 2}, POD, STRATEGIC)).status == 200
    assert [(each.method, each.user) for each in world.journal.events.values()] == [
        ("POST", USER),
        ("PATCH", USER),
    ]


@pytest.mark.parametrize("caller", [HUB, POD])
async def test_a_dry_run_of_an_event_needs_the_cloud(world: World, caller: Caller) -> None:
    assert await world.refusal("POST", f"{EVENTS}?dryRun=All", event(), caller) == 503


async def test_a_registered_node_is_409_on_a_second_creation(world: World) -> None:
    """kubelet then reads its node and continues from there."""
    nodes, node = "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n9"}}
    assert await world.refusal("POST", nodes, node) == 503
    world.writes.cache_created("", asked("POST", nodes, node), {"content-type": JSON}, raw(node))
    assert await world.refusal("POST", nodes, node) == 409
    assert await world.refusal("POST", nodes, b"{") == 503


async def test_a_body_beyond_kube_apiservers_limit_is_413(world: World) -> None:
    assert await world.refusal("POST", EVENTS, b" " * (MAX_WRITE + 1)) == 413


async def test_a_patch_of_an_event_is_sent_after_its_pending_entries(world: World) -> None:
    """With the cloud back, pending entries once overwrote a patch that the hub had relayed meanwhile."""
    later = asked("PATCH", f"{EVENTS}/e", {"count": 3}, content_type=STRATEGIC)
    assert not world.writes.is_pending(later.info)
    world.writes.cache_created("", asked("POST", EVENTS, event()), {"content-type": JSON}, b"")
    await world.send("PATCH", f"{EVENTS}/e", {"count": 2}, content_type=STRATEGIC)
    assert world.writes.is_pending(later.info)
    assert await world.writes.flush(later.info)
    assert not world.writes.is_pending(later.info)
    assert world.cloud.lines == [("POST", EVENTS), ("PATCH", f"{EVENTS}/e")], "the event itself first"


async def test_all_other_writes_need_the_cloud(world: World) -> None:
    assert await world.refusal("POST", "/apis/authentication.k8s.io/v1/tokenreviews") == 503


# -- pending entries -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("PATCH", "/api/v1/nodes/n2/status"),
        ("GET", NODE),
        ("PATCH", NODE),
        ("POST", EVENTS),
        ("GET", "/version"),
    ],
)
async def test_requests_without_a_pending_status_flush_nothing(
    world: World, method: str, target: str
) -> None:
    world.journal.put_status(StatusEntry(NODE, "Node", "u", node("n1"), {**node("n1"), **REPORT}))
    info = parse_request(method, target)
    assert not world.writes.is_pending(info)
    assert await world.writes.flush(info)
    assert not world.cloud.heard
