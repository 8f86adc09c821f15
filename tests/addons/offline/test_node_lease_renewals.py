"""Renewals of the node's lease in the cloud: only while kubelet renews it, and never with an earlier time."""

from __future__ import annotations

import asyncio
import datetime

import pytest

from addons.offline.node_lease import AUDIT_ID, DEFAULT_DURATION, RENEWALS, RETRY_INTERVAL
from addons.telemetry import metrics
from kube.errors import StatusError
from kube.fleet import ANNOTATION
from kube.http.client import ApiResponse, Unreachable
from kube.json_type import Json
from kube.objects.object_patches import MERGE_PATCH
from kube.wire.json_fields import write_json
from tests.addons.support.lease_parts import GONE, LEASE, World, lease
from tests.addons.support.observed import until, value_of
from tests.addons.support.refusals import refuses


def renewals(kubelet: World) -> list[Json]:
    return [each.document["spec"] for each in kubelet.cloud.heard if each.method == "PATCH"]


@pytest.mark.looptime
async def test_the_status_of_the_hub_is_sent_once_with_the_next_renewal(kubelet: World) -> None:
    kubelet.cloud.says = [lease(version=33)]

    def reported() -> list[str]:
        return [
            each.document["metadata"]["annotations"][ANNOTATION]
            for each in kubelet.cloud.heard
            if each.body and "annotations" in each.document.get("metadata", {})
        ]

    kubelet.lease.publish_status("one")
    async with kubelet.running():
        await kubelet.put()
        await asyncio.sleep(25)
        assert reported() == ["one"]
        kubelet.lease.publish_status("two")
        await kubelet.put()
        await asyncio.sleep(25)
        assert reported() == ["one", "two"]
        kubelet.cloud.says = [lease(version=34)]
        await kubelet.put(zone="a")
        await asyncio.sleep(25)
    assert reported() == ["one", "two", "two"], "kubelet's own Lease, written whole, had no status"


@pytest.mark.looptime
async def test_a_hub_that_starts_leaves_the_status_of_the_former_one(kubelet: World) -> None:
    """Or the fleet would be without its row until the hub has reported."""
    known = lease(version=33)
    known["metadata"]["annotations"] = {ANNOTATION: "former"}
    kubelet.cloud.says = [known]
    async with kubelet.running():
        await kubelet.put()
        await asyncio.sleep(25)
        (pushed,) = (each.document for each in kubelet.cloud.heard if each.method == "PUT")
        assert pushed["metadata"]["annotations"] == {ANNOTATION: "former"}
        kubelet.lease.publish_status("new")
        await kubelet.put()
        await asyncio.sleep(25)
    patches = [each.document for each in kubelet.cloud.heard if each.method == "PATCH"]
    statuses = [each["metadata"]["annotations"][ANNOTATION] for each in patches if "metadata" in each]
    assert statuses == ["new"], "the former one is repeated no more"


@pytest.mark.looptime
async def test_the_lease_is_created_in_the_cloud_and_renewed_while_kubelet_renews_it(kubelet: World) -> None:
    kubelet.cloud.says = [lease(version=33)]
    before = value_of(metrics.LEASE_RENEWALS.labels("ok"))
    async with kubelet.running():
        await asyncio.sleep(60)
        assert not kubelet.cloud.heard, "nobody has heard of kubelet yet"
        await kubelet.put()
        await asyncio.sleep(2 * DEFAULT_DURATION / RENEWALS + 1)
    assert kubelet.cloud.lines == [("GET", LEASE), ("PUT", LEASE), *[("PATCH", LEASE)] * 3]
    pushed = kubelet.cloud.heard[1].document
    assert pushed["metadata"]["resourceVersion"] == "33"
    assert "uid" not in pushed["metadata"], "whatever lease is there"
    assert kubelet.cloud.heard[2].content_type == MERGE_PATCH
    assert [each.headers.get("Prefer") for each in kubelet.cloud.heard] == [None] * 2 + ["return=minimal"] * 3
    assert kubelet.cloud.heard[-1].headers["Audit-Id"] == AUDIT_ID + LEASE.rpartition("/")[2]
    assert {key: renewals(kubelet)[0][key] for key in ("holderIdentity", "leaseDurationSeconds")} == {
        "holderIdentity": "n1",
        "leaseDurationSeconds": 40,
    }
    assert [set(each.document) for each in kubelet.cloud.heard[2:]] == [{"spec"}] * 3
    assert [set(each) for each in renewals(kubelet)[1:]] == [{"renewTime"}] * 2, "the cloud has the rest"
    stamps = [datetime.datetime.fromisoformat(each["renewTime"]) for each in renewals(kubelet)]
    assert stamps == sorted(stamps)
    assert value_of(metrics.LEASE_RENEWALS.labels("ok")) == before + 3


@pytest.mark.looptime
async def test_the_lease_is_not_renewed_once_kubelet_stops_renewing_it(kubelet: World) -> None:
    await kubelet.put()
    async with kubelet.running():
        await asyncio.sleep(DEFAULT_DURATION / RENEWALS + 1)
        heard = len(kubelet.cloud.heard)
        kubelet.now += DEFAULT_DURATION
        assert not kubelet.lease.describe()["renewing"]
        await asyncio.sleep(600)
        assert len(kubelet.cloud.heard) == heard
        await kubelet.put()
        await asyncio.sleep(1)
        assert len(kubelet.cloud.heard) > heard, "it is back"


@pytest.mark.parametrize(("duration", "alive"), [(40, 39.9), (10, 9.9), (0, DEFAULT_DURATION - 0.1)])
async def test_kubelets_renewal_is_valid_for_the_lease_duration(
    kubelet: World, duration: int, alive: float
) -> None:
    await kubelet.ask("PUT", lease(duration=duration))
    kubelet.now += alive
    assert kubelet.lease.describe()["renewing"]
    kubelet.now += 0.2
    assert not kubelet.lease.describe()["renewing"]


@pytest.mark.looptime
@pytest.mark.parametrize("duration", [2**31 - 1, -1])
async def test_an_invalid_duration_delays_renewals_only_until_kubelets_next_one(
    kubelet: World, duration: int
) -> None:
    """Any user of the node can write the Lease at the plain port; such a duration once ended the renewals."""
    kubelet.cloud.usual = lease(version=33)
    async with kubelet.running():
        await kubelet.ask("PUT", lease(duration=duration))
        await asyncio.sleep(1)
        await kubelet.put()
        heard = len(renewals(kubelet))
        await asyncio.sleep(DEFAULT_DURATION / RENEWALS + 1)
        assert len(renewals(kubelet)) > heard


async def test_reading_the_lease_does_not_count_as_a_renewal(kubelet: World) -> None:
    kubelet.cloud.usual = lease(version=7)
    await kubelet.ask("GET")
    assert not kubelet.lease.describe()["renewing"]


@pytest.mark.looptime
async def test_renewals_pause_offline_and_resume_at_once_with_the_cloud(kubelet: World) -> None:
    kubelet.is_up = False
    await kubelet.put()
    async with kubelet.running():
        await asyncio.sleep(60)
        assert not kubelet.cloud.heard
        kubelet.is_up = True
        kubelet.changed.notify()
        await until(lambda: kubelet.cloud.heard, 0.1)


@pytest.mark.looptime
@pytest.mark.parametrize(
    "error",
    [
        Unreachable("no route"),
        StatusError(500, "InternalError", "etcd"),
        StatusError(409, "Conflict", "changed"),
    ],
)
async def test_a_failed_renewal_is_retried_soon(kubelet: World, error: Exception) -> None:
    failed = metrics.LEASE_RENEWALS.labels("failed")
    before = value_of(failed)
    await kubelet.put()
    loop = asyncio.get_running_loop()
    async with kubelet.running():
        await until(lambda: len(kubelet.cloud.heard) == 3)
        kubelet.cloud.says = [error]
        await until(lambda: len(kubelet.cloud.heard) == 4, 60)
        began = loop.time()
        await until(lambda: len(kubelet.cloud.heard) == 5, 60)
        assert loop.time() - began == pytest.approx(RETRY_INTERVAL, abs=0.1)
    assert value_of(failed) == before + 1
    assert kubelet.cloud.lines[-1] == ("PATCH", LEASE)
    assert len(renewals(kubelet)[-1]) == 3, "who knows what the cloud has after a failure"


@pytest.mark.looptime
async def test_a_failed_renewal_is_retried_as_soon_as_a_server_is_usable(kubelet: World) -> None:
    """A renewal over a broken link must not wait while another link is up."""
    await kubelet.put()
    loop = asyncio.get_running_loop()
    async with kubelet.running():
        await until(lambda: len(kubelet.cloud.heard) == 3)
        kubelet.cloud.says = [Unreachable("the connection was cut")]
        await until(lambda: len(kubelet.cloud.heard) == 4, 60)
        began = loop.time()
        await asyncio.sleep(0)
        kubelet.changed.notify()
        await until(lambda: len(kubelet.cloud.heard) == 5, 60)
        assert loop.time() - began < RETRY_INTERVAL / 2


@pytest.mark.looptime
@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_lease_deleted_in_the_cloud_is_recreated_by_kubelet_only(
    kubelet: World, is_restarted: bool
) -> None:
    """After the Node was deleted and registered again, the hub once recreated the previous Node's Lease for ever."""
    await kubelet.put()
    async with kubelet.running():
        await until(lambda: len(kubelet.cloud.heard) == 3)
        if not is_restarted:
            kubelet.cloud.says = [GONE]
            await until(lambda: len(kubelet.cloud.heard) == 4, 60)
            await until(lambda: not kubelet.lease.is_alive())
    if is_restarted:
        kubelet.fresh()
        kubelet.cloud.says = [GONE]
        await kubelet.put()
        async with kubelet.running():
            await until(lambda: not kubelet.lease.is_alive())
    with refuses(409):
        await kubelet.put()
    without_uid = lease()
    del without_uid["metadata"]["uid"]
    with refuses(404):
        await kubelet.ask("PUT", without_uid)
    kubelet.cloud.says = [GONE]
    with refuses(404):
        await kubelet.ask("GET")
    made = {**lease(), "metadata": {**lease()["metadata"], "uid": "new"}}
    kubelet.cloud.says = [made]
    assert (await kubelet.ask("POST", without_uid))[0] == 201
    assert (await kubelet.ask("PUT", made))[0] == 200
    assert not [line for line in kubelet.cloud.lines[3:-1] if line[0] == "POST"], (
        "the hub made none by itself"
    )


@pytest.mark.looptime
async def test_a_lease_recreated_by_another_client_is_not_overwritten(kubelet: World) -> None:
    other = lease()
    other["metadata"]["uid"] = "another"
    kubelet.cloud.says = [other]
    await kubelet.put()
    async with kubelet.running():
        await until(lambda: not kubelet.lease.is_alive())
    assert kubelet.cloud.lines == [("GET", LEASE)]
    with refuses(409):
        await kubelet.put()
    kubelet.cloud.says = [other]
    await kubelet.ask("GET")
    assert (await kubelet.ask("PUT", other))[0] == 200


@pytest.mark.looptime
async def test_a_renewal_sends_changed_metadata_with_the_time(kubelet: World) -> None:
    await kubelet.put()
    async with kubelet.running():
        await until(lambda: len(kubelet.cloud.heard) == 3)
        await kubelet.put(zone="b")
        await until(lambda: len(kubelet.cloud.heard) == 6, 60)
    assert kubelet.cloud.lines[3:] == [("GET", LEASE), ("PUT", LEASE), ("PATCH", LEASE)]
    assert kubelet.cloud.heard[4].document["metadata"]["labels"] == {"zone": "b"}


@pytest.mark.looptime
async def test_a_failed_renewal_does_not_end_the_renewals(kubelet: World) -> None:
    await kubelet.put()
    kubelet.cloud.says = [ApiResponse("application/yaml", b"a: b"), RuntimeError("unforeseen")]
    async with kubelet.running():
        await until(lambda: len(kubelet.cloud.heard) >= 5, 60)
    assert kubelet.cloud.lines[:4] == [("GET", LEASE), ("GET", LEASE), ("GET", LEASE), ("PUT", LEASE)]


class Wall(datetime.datetime):
    """A wall clock that a test sets."""

    at = datetime.datetime(2026, 1, 2, 12, 0, tzinfo=datetime.UTC)

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:  # type: ignore[override]  # of a narrower type there
        return cls.at


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> type[Wall]:
    monkeypatch.setattr("addons.offline.node_lease.datetime.datetime", Wall)
    monkeypatch.setattr(Wall, "at", Wall.at)  # the clock is set back after the test
    return Wall


async def test_a_clock_that_is_set_back_never_lowers_the_renew_time(kubelet: World, wall: type[Wall]) -> None:
    await kubelet.put()
    assert await kubelet.lease._renew()
    for back in (0, 3600, 0):
        kubelet.now += 10
        wall.at += datetime.timedelta(seconds=10 - back)
        assert await kubelet.lease._renew()
    assert [each["renewTime"] for each in renewals(kubelet)] == [
        "2026-01-02T12:00:00.000000Z",
        "2026-01-02T12:00:10.000000Z",
        "2026-01-02T12:00:20.000000Z",
        "2026-01-02T12:00:30.000000Z",
    ]
    # Kubelet's own renew time is older, and is sent with its changes.
    await kubelet.put(zone="b")
    assert await kubelet.lease._renew()
    assert kubelet.cloud.lines[-2:] == [("PUT", LEASE), ("PATCH", LEASE)]
    assert renewals(kubelet)[-1]["renewTime"] >= "2026-01-02T12:00:30.000000Z"


async def test_no_content_of_the_lease_in_the_cloud_ends_the_renewals(
    kubelet: World, wall: type[Wall]
) -> None:
    """Any local user can have written it: the latest possible time, or deeply nested managedFields."""
    deep: Json = {}
    for _ in range(5_000):
        deep = {"f:a": deep}
    written = lease(version=7)
    written["spec"]["renewTime"] = "9999-12-31T23:59:59.999999Z"
    written["metadata"]["managedFields"] = [{"fieldsV1": deep}]
    kubelet.cloud.says = [ApiResponse("application/json", write_json(written))]
    await kubelet.put()
    assert await kubelet.lease._renew()
    kubelet.now += 10
    assert await kubelet.lease._renew()
    assert renewals(kubelet)[0]["renewTime"] == "2026-01-02T12:00:00.000000Z"


async def test_a_renewal_is_never_earlier_than_one_by_an_earlier_process(
    kubelet: World, wall: type[Wall]
) -> None:
    """The clock may have been set back between the two processes."""
    wall.at -= datetime.timedelta(days=1)
    kubelet.cloud.says = [lease(version=7)]
    await kubelet.put()
    assert await kubelet.lease._renew()
    kubelet.now += 10
    assert await kubelet.lease._renew()
    assert [each["renewTime"] for each in renewals(kubelet)] == [
        "2026-01-02T03:04:05.000000Z",
        "2026-01-02T03:04:15.000000Z",
    ]
