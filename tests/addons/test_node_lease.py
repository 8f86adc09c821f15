"""Kubelet's lease: answered by the node at all times, renewed in the cloud while kubelet lives and no longer."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from addons import metrics
from addons.answers import Answers
from addons.caller import Caller, Lending, Listener
from addons.exchange import TICKET_HEADER, Exchange
from addons.node_lease import FRESH, MERGE_PATCH, RENEW_INTERVAL, RETRY_INTERVAL, NodeLease
from addons.origin import Origin
from addons.routing import Kind, Route
from kube.client import Answer, Client, Unreachable, new_session
from kube.pulse import Pulse
from kube.request import parse_request
from kube.status import StatusError
from tests.addons.hub_parts import HUB_TOKEN
from tests.addons.observed import until, value_of
from tests.addons.offline_parts import (
    JSON,
    PROTOBUF,
    Told,
    asked,
    body_of,
    copies_in,
    in_protobuf,
    read,
)
from tests.addons.samples import Json, raw
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.faults import Refuse

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
LEASE = f"{LEASES}/n1"
GONE = StatusError(404, "NotFound", "no lease")


def lease(name: str = "n1", version: int = 0, duration: int = 40) -> Json:
    metadata: Json = {"name": name, "namespace": "kube-node-lease", "uid": "u"}
    if version:
        metadata["resourceVersion"] = str(version)
    spec = {
        "holderIdentity": name,
        "leaseDurationSeconds": duration,
        "renewTime": "2026-01-02T03:04:05.000000Z",
    }
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


def protobuf_lease(name: str = "n1") -> bytes:
    obj = in_protobuf("coordination.k8s.io/v1", "Lease", name, "kube-node-lease", uid="u")
    obj.fields.child("spec").set("holderIdentity", name)
    obj.fields.child("spec").set("leaseDurationSeconds", 40)
    return body_of(obj)


class World:
    """The lease of a node, behind an origin where a test asks by HTTP."""

    def __init__(self, client: Client, answers: Answers) -> None:
        self.is_up = True
        self.changed = Pulse()
        self.now = 1000.0
        self.answers = answers
        self.client = client
        self.lease = self.fresh()

    def fresh(self) -> NodeLease:
        """As after a restart."""
        self.lease = NodeLease(
            "n1", self.client, self.answers, lambda: self.is_up, self.changed, lambda: self.now
        )
        return self.lease

    async def ask(
        self, method: str, body: Json | bytes = b"", accept: str | None = JSON, content_type: str = JSON
    ) -> tuple[int, Any, str]:
        """Code, body and media type of an answer; StatusError as the origin gets it."""
        target = LEASES if method == "POST" else LEASE
        request = asked(method, target, body, accept=accept, content_type=content_type)
        answer = await {"GET": self.lease._get, "POST": self.lease._create, "PUT": self.lease._update}[
            method
        ](request)
        return answer.status, answer.body, answer.headers["Content-Type"]

    async def put(self, **labels: str) -> None:
        """A renewal by kubelet."""
        sent = lease()
        if labels:
            sent["metadata"]["labels"] = labels
        await self.ask("PUT", sent)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.lease.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def written(self) -> None:
        for task in list(self.answers._tasks):
            await task


@pytest.fixture
def told() -> Told:
    """Has a lease, whatever it is asked."""
    made = Told()
    made.usual = lease(version=3)
    return made


@pytest.fixture
async def world(tmp_path: Path, told: Told) -> AsyncIterator[World]:
    async with copies_in(tmp_path) as copies:
        made = World(told, Answers(copies))
        yield made
        await made.written()


def code_of(refused: pytest.ExceptionInfo[StatusError]) -> int:
    return refused.value.code


# -- what kubelet is answered --------------------------------------------------------------------------------------


async def test_the_origin_answers_each_verb_over_http(world: World, told: Told) -> None:
    told.says = [GONE]
    origin, session = Origin({Kind.LOCAL: world.lease}), new_session()
    await origin.start()

    async def send(method: str, target: str, body: Json | None = None) -> tuple[int, Json]:
        exchange = Exchange(
            parse_request(method, target), "kubelet", Listener.PLAIN, JSON, Caller(Lending.HUB)
        )
        exchange.route = Route(Kind.LOCAL, "test")
        headers = {TICKET_HEADER: origin.ticket(exchange), "Accept": JSON, "Content-Type": JSON}
        host, port = origin.address
        async with session.request(
            method, f"http://{host}:{port}{target}", headers=headers, data=raw(body) if body else None
        ) as answer:
            found: Json = await _document(answer)
            return answer.status, found

    assert (await send("GET", LEASE))[0] == 404
    told.usual = lease(version=7)
    assert (await send("POST", LEASES, lease()))[0] == 201
    renewed = lease(version=7, duration=41)
    assert await send("PUT", LEASE, renewed) == (200, renewed)
    assert await send("GET", LEASE) == (200, renewed)
    assert (await send("PUT", LEASE, lease("n2")))[0] == 400
    await session.close()
    assert origin._runner is not None
    await origin._runner.cleanup()
    origin.close()


async def _document(answer: aiohttp.ClientResponse) -> Json:
    found: Json = await answer.json()
    return found


async def test_the_first_get_is_the_clouds_and_later_ones_are_not_asked_for(world: World, told: Told) -> None:
    told.usual = lease(version=7)
    for _ in range(2):
        code, body, content_type = await world.ask("GET")
        assert (code, read(body).version, content_type) == (200, 7, JSON)
    assert told.lines == [("GET", LEASE)]


async def test_what_the_cloud_says_of_a_missing_lease_is_what_kubelet_hears(world: World, told: Told) -> None:
    told.says = [GONE]
    with pytest.raises(StatusError) as refused:
        await world.ask("GET")
    assert code_of(refused) == 404


async def test_an_update_is_kept_here_and_asks_nobody(world: World, told: Told) -> None:
    sent = lease(version=5)
    code, body, _ = await world.ask("PUT", sent)
    assert (code, read(body).encode()) == (200, raw(sent))
    assert (await world.ask("GET"))[1] == body
    assert not told.heard


async def test_a_client_of_the_other_encoding_gets_the_clouds(world: World, told: Told) -> None:
    await world.ask("PUT", protobuf_lease(), PROTOBUF, PROTOBUF)
    told.usual = lease(version=9)
    assert read((await world.ask("GET", accept=JSON))[1]).version == 9
    code, body, content_type = await world.ask("GET", accept=f"{PROTOBUF},{JSON}")
    assert (code, content_type, body) == (200, PROTOBUF, protobuf_lease())
    assert len(told.heard) == 1


@pytest.mark.parametrize(
    "accept",
    [f"{JSON};as=Table;v=v1;g=meta.k8s.io,{JSON}", f"{JSON};as=PartialObjectMetadata;v=v1;g=meta.k8s.io,*/*"],
)
async def test_the_cloud_is_asked_for_whole_leases_alone(world: World, told: Told, accept: str) -> None:
    """A table that a person asked for must not become the lease that kubelet gets."""
    told.usual = lease(version=7)
    await world.ask("GET", accept=accept)
    assert [each.accept for each in told.heard] == [JSON]


@pytest.mark.parametrize("is_up", [True, False])
@pytest.mark.parametrize("accept", ["application/yaml", f"{JSON};as=Table;v=v1;g=meta.k8s.io"])
async def test_a_form_that_is_not_made_here_is_a_406(
    world: World, told: Told, accept: str, is_up: bool
) -> None:
    world.is_up = is_up
    with pytest.raises(StatusError) as refused:
        await world.ask("GET", accept=accept)
    assert code_of(refused) == 406
    with pytest.raises(StatusError) as refused:
        await world.ask("PUT", lease(), accept=accept)
    assert code_of(refused) == 406
    assert not told.heard


async def test_a_lease_that_was_created_is_the_clouds(world: World, told: Told) -> None:
    told.usual = lease(version=12)
    code, body, _ = await world.ask("POST", lease())
    assert (code, read(body).version) == (201, 12)
    assert told.lines == [("POST", LEASES)]


async def test_a_lease_that_is_there_already_is_not_created(world: World, told: Told) -> None:
    told.says = [StatusError(409, "AlreadyExists", "there")]
    with pytest.raises(StatusError) as refused:
        await world.ask("POST", lease())
    assert code_of(refused) == 409
    world.is_up = False
    await world.put()
    with pytest.raises(StatusError) as refused:
        await world.ask("POST", lease())
    assert (code_of(refused), refused.value.reason) == (409, "AlreadyExists")


@pytest.mark.parametrize("how", ["known to be gone", "found to be gone"])
async def test_a_lease_is_created_without_a_cloud(world: World, told: Told, how: str) -> None:
    if how == "known to be gone":
        world.is_up = False
    told.says = [Unreachable("no route")]
    code, body, _ = await world.ask("POST", lease())
    assert (code, read(body).name) == (201, "n1")
    assert (await world.ask("GET"))[0] == 200


@pytest.mark.parametrize(
    ("method", "name", "code"), [("PUT", "n2", 400), ("POST", "n2", 403), ("PUT", "", 400), ("POST", "", 400)]
)
async def test_no_other_nodes_lease_is_taken(
    world: World, told: Told, method: str, name: str, code: int
) -> None:
    with pytest.raises(StatusError) as refused:
        await world.ask(method, lease(name))
    assert code_of(refused) == code
    assert not told.heard
    assert world.lease.describe()["secondsSinceKubelet"] is None, "no sign of life"


@pytest.mark.parametrize(
    ("body", "content_type", "code"),
    [(b"{", JSON, 400), (raw({**lease(), "kind": "Pod"}), JSON, 400), (b"x", "application/yaml", 415)],
)
async def test_what_is_no_lease_is_no_sign_of_life(
    world: World, body: bytes, content_type: str, code: int
) -> None:
    with pytest.raises(StatusError) as refused:
        await world.ask("PUT", body, content_type=content_type)
    assert code_of(refused) == code
    assert world.lease.describe() == {"node": "n1", "secondsSinceKubelet": None, "renewing": False}


@pytest.mark.parametrize(
    "answer", [Answer("text/html", b"<html>"), Answer(JSON, b"{"), Answer(JSON, raw({"kind": "Status"}))]
)
async def test_an_answer_that_is_no_lease_is_as_no_answer(world: World, told: Told, answer: Answer) -> None:
    told.usual = answer
    with pytest.raises(StatusError) as refused:
        await world.ask("GET")
    assert code_of(refused) == 503
    assert (await world.ask("POST", lease()))[0] == 201


# -- after a restart without a cloud -------------------------------------------------------------------------------


async def test_without_a_cloud_the_lease_is_the_one_that_was_kept(world: World) -> None:
    await world.ask("PUT", protobuf_lease(), PROTOBUF, PROTOBUF)
    await world.put()
    await world.written()
    world.fresh()
    world.is_up = False
    assert (await world.ask("GET", accept=f"{PROTOBUF},{JSON}"))[1] == protobuf_lease()
    assert read((await world.ask("GET"))[1]).encode() == raw(lease())


async def test_a_lease_that_was_never_seen_is_a_503(world: World) -> None:
    world.is_up = False
    with pytest.raises(StatusError) as refused:
        await world.ask("GET")
    assert code_of(refused) == 503


async def test_a_copy_that_cannot_be_read_is_none(world: World) -> None:
    await world.put()
    for name in list(world.answers._index):
        world.answers.keep(name, {"content-type": JSON}, b"{")
    world.fresh()
    world.is_up = False
    with pytest.raises(StatusError) as refused:
        await world.ask("GET")
    assert code_of(refused) == 503


async def test_only_what_changes_the_lease_itself_is_written_to_disk(world: World) -> None:
    kept: list[str] = []
    keep = world.answers.keep

    def count(name: str, headers: dict[str, str], body: bytes) -> None:
        kept.append(name)
        keep(name, headers, body)

    vars(world.answers)["keep"] = count
    for version in range(1, 5):
        await world.ask("PUT", {**lease(version=version), "spec": {"renewTime": str(version)}})
    assert len(kept) == 1
    await world.put(zone="a")
    assert len(kept) == 2


# -- renewals ------------------------------------------------------------------------------------------------------


def renewals(told: Told) -> list[Json]:
    return [each.document["spec"] for each in told.heard if each.method == "PATCH"]


@pytest.mark.looptime
async def test_while_kubelet_lives_its_lease_is_brought_to_the_cloud_and_renewed(
    world: World, told: Told
) -> None:
    told.says = [lease(version=33)]
    before = value_of(metrics.LEASE_RENEWALS.labels("ok"))
    async with world.running():
        await asyncio.sleep(60)
        assert not told.heard, "nobody has heard of kubelet yet"
        await world.put()
        await asyncio.sleep(2 * RENEW_INTERVAL + 1)
    assert told.lines == [("GET", LEASE), ("PUT", LEASE), *[("PATCH", LEASE)] * 3]
    pushed = told.heard[1].document
    assert pushed["metadata"]["resourceVersion"] == "33"
    assert "uid" not in pushed["metadata"], "whatever lease is there"
    assert told.heard[2].content_type == MERGE_PATCH
    assert set(told.heard[2].document) == {"spec"}
    assert {key: renewals(told)[0][key] for key in ("holderIdentity", "leaseDurationSeconds")} == {
        "holderIdentity": "n1",
        "leaseDurationSeconds": 40,
    }
    stamps = [datetime.datetime.fromisoformat(each["renewTime"]) for each in renewals(told)]
    assert stamps == sorted(stamps)
    assert value_of(metrics.LEASE_RENEWALS.labels("ok")) == before + 3


@pytest.mark.looptime
async def test_a_dead_kubelet_is_not_kept_alive(world: World, told: Told) -> None:
    await world.put()
    async with world.running():
        await asyncio.sleep(RENEW_INTERVAL + 1)
        heard = len(told.heard)
        world.now += FRESH
        assert not world.lease.describe()["renewing"]
        await asyncio.sleep(600)
        assert len(told.heard) == heard
        await world.put()
        await asyncio.sleep(1)
        assert len(told.heard) > heard, "it is back"


@pytest.mark.parametrize(("duration", "alive"), [(40, 39.9), (10, 9.9), (0, FRESH - 0.1)])
async def test_a_lease_says_itself_how_long_a_renewal_counts(
    world: World, duration: int, alive: float
) -> None:
    await world.ask("PUT", lease(duration=duration))
    world.now += alive
    assert world.lease.describe()["renewing"]
    world.now += 0.2
    assert not world.lease.describe()["renewing"]


async def test_reading_the_lease_is_no_sign_of_life(world: World, told: Told) -> None:
    told.usual = lease(version=7)
    await world.ask("GET")
    assert not world.lease.describe()["renewing"]


@pytest.mark.looptime
async def test_without_a_cloud_nothing_is_renewed_and_with_one_at_once(world: World, told: Told) -> None:
    world.is_up = False
    await world.put()
    async with world.running():
        await asyncio.sleep(60)
        assert not told.heard
        world.is_up = True
        world.changed.beat()
        await until(lambda: told.heard, 0.1)


@pytest.mark.looptime
@pytest.mark.parametrize(
    "error",
    [
        Unreachable("no route"),
        StatusError(500, "InternalError", "etcd"),
        StatusError(409, "Conflict", "changed"),
    ],
)
async def test_a_renewal_that_failed_is_tried_again_soon(world: World, told: Told, error: Exception) -> None:
    failed = metrics.LEASE_RENEWALS.labels("failed")
    before = value_of(failed)
    await world.put()
    loop = asyncio.get_running_loop()
    async with world.running():
        await until(lambda: len(told.heard) == 3)
        told.says = [error]
        await until(lambda: len(told.heard) == 4, 60)
        began = loop.time()
        await until(lambda: len(told.heard) == 5, 60)
        assert loop.time() - began == pytest.approx(RETRY_INTERVAL, abs=0.1)
    assert value_of(failed) == before + 1
    assert told.lines[-1] == ("PATCH", LEASE)


@pytest.mark.looptime
async def test_a_lease_that_was_deleted_in_the_cloud_is_made_again(world: World, told: Told) -> None:
    await world.put()
    async with world.running():
        await until(lambda: len(told.heard) == 3)
        told.says = [GONE, GONE]
        await until(lambda: len(told.heard) == 7, 60)
    assert told.lines[3:] == [("PATCH", LEASE), ("GET", LEASE), ("POST", LEASES), ("PATCH", LEASE)]
    made = told.heard[5].document
    assert made["metadata"].get("resourceVersion", "") == ""
    assert made["spec"]["holderIdentity"] == "n1"


@pytest.mark.looptime
async def test_changed_metadata_is_pushed_and_not_only_the_time(world: World, told: Told) -> None:
    await world.put()
    async with world.running():
        await until(lambda: len(told.heard) == 3)
        await world.put(zone="b")
        await until(lambda: len(told.heard) == 6, 60)
    assert told.lines[3:] == [("GET", LEASE), ("PUT", LEASE), ("PATCH", LEASE)]
    assert told.heard[4].document["metadata"]["labels"] == {"zone": "b"}


@pytest.mark.looptime
async def test_what_goes_wrong_in_a_renewal_does_not_end_the_renewals(world: World, told: Told) -> None:
    await world.put()
    told.says = [Answer("application/yaml", b"a: b"), RuntimeError("unforeseen")]
    async with world.running():
        await until(lambda: len(told.heard) >= 5, 60)
    assert told.lines[:4] == [("GET", LEASE), ("GET", LEASE), ("GET", LEASE), ("PUT", LEASE)]


async def test_a_clock_that_is_set_back_renews_no_earlier(
    world: World, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wall(datetime.datetime):
        at = datetime.datetime(2026, 1, 2, 12, 0, tzinfo=datetime.UTC)

        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:  # type: ignore[override]
            return cls.at

    monkeypatch.setattr("addons.node_lease.datetime.datetime", Wall)
    await world.put()
    assert await world.lease._renew()
    for back in (0, 3600, 0):
        world.now += 10
        Wall.at += datetime.timedelta(seconds=10 - back)
        assert await world.lease._renew()
    assert [each["renewTime"] for each in renewals(told)] == [
        "2026-01-02T12:00:00.000000Z",
        "2026-01-02T12:00:10.000000Z",
        "2026-01-02T12:00:20.000000Z",
        "2026-01-02T12:00:30.000000Z",
    ]
    # Kubelet's own stamp is from before, and goes with what it has changed.
    await world.put(zone="b")
    assert await world.lease._renew()
    assert told.lines[-2:] == [("PUT", LEASE), ("PATCH", LEASE)]
    assert renewals(told)[-1]["renewTime"] >= "2026-01-02T12:00:30.000000Z"


async def test_a_real_lease_follows_kubelet(tmp_path: Path, cloud: ScriptableCloud) -> None:
    session = new_session()
    client = Client(session, cloud.url, {"Authorization": f"Bearer {HUB_TOKEN}"})
    async with copies_in(tmp_path) as copies:
        world = World(client, Answers(copies))
        world.is_up = False
        assert (await world.ask("POST", protobuf_lease(), PROTOBUF, PROTOBUF))[0] == 201
        world.is_up = True
        assert await world.lease._renew(), "created"
        made = cloud.store.get("leases", "n1", "kube-node-lease")
        assert made["spec"]["holderIdentity"] == "n1"
        assert await world.lease._renew(), "touched"
        touched = cloud.store.get("leases", "n1", "kube-node-lease")
        assert touched["metadata"]["uid"] == made["metadata"]["uid"]
        assert touched["spec"]["renewTime"]
        cloud.faults.add(Refuse(503))
        assert not await world.lease._renew()
        cloud.store.delete("leases", "n1", "kube-node-lease")
        assert not await world.lease._renew()
        assert await world.lease._renew()
        assert cloud.store.get("leases", "n1", "kube-node-lease")["spec"]["holderIdentity"] == "n1"
        await world.written()
    await session.close()
