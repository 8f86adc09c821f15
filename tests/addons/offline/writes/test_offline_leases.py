"""Leader-election leases without the cloud: renewals, refusals, and the version that is sent to the cloud later."""

from __future__ import annotations

import contextlib

import pytest

from addons.offline.tables.disk_access import DiskAccess
from addons.offline.writes.offline_leases import MAX_LEASE, TABLE, OfflineLeases
from addons.telemetry import metrics
from kube.errors import StatusError
from kube.http.client import RawResponse
from kube.json_type import Json
from kube.objects.object_patches import MERGE_PATCH
from tests.addons.support.devices import Device
from tests.addons.support.observed import value_of
from tests.addons.support.offline_parts import JSON, PROTOBUF, asked, body_of, in_protobuf, read
from tests.addons.support.refusals import refuses
from tests.addons.support.samples import raw
from tests.support.objects import obj

PATH = "/apis/coordination.k8s.io/v1/namespaces/shop/leases/web"
OWN, OTHER = "system:serviceaccount:shop:web", "system:serviceaccount:shop:other"


def lease(version: int = 7, holder: str = "pod-1", filler: str = "") -> Json:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": "2026-01-02T03:04:05.000000Z"}
    return obj("Lease", "web", "shop", version, annotations=filler and {"filler": filler}, spec=spec)


class World:
    def __init__(self, access: DiskAccess) -> None:
        self.now = 0.0
        self.leases = OfflineLeases(access, lambda: self.now)
        self.leases.named = {("shop", "web")}

    async def open(self) -> World:
        """Start a process on the state that an earlier one left."""
        await self.leases.open()
        return self

    async def written(self) -> None:
        await self.leases._rows.settled()

    def passed(self, method: str, document: Json, user: str = OWN, status: int = 200) -> None:
        """Relay the cloud's response to a user's request."""
        self.leases.cache_lease(
            user, asked(method, PATH), RawResponse(status, {"content-type": JSON}, raw(document))
        )

    def renew(self, document: Json, user: str = OWN) -> Json | None:
        """Renew a Lease while the cloud is away; return the response to this user."""
        answer = self.leases.answer(user, asked("PUT", PATH, document))
        if answer is None:
            return None
        assert isinstance(answer.body, bytes)
        obj = read(answer.body)
        return {"version": obj.version, "holder": obj.fields.child("spec").text("holderIdentity")}

    def refused(self, document: Json, user: str = OWN) -> int:
        with pytest.raises(StatusError) as refusal:
            self.renew(document, user)
        return refusal.value.code


@pytest.fixture
async def world(access: DiskAccess) -> World:
    return await World(access).open()


async def test_the_holder_renews_its_lease_without_a_new_version(world: World) -> None:
    world.passed("PUT", lease())
    for _ in range(5):
        world.now += 14.0
        assert world.renew(lease()) == {"version": 7, "holder": "pod-1"}
    held = world.leases.answer(OTHER, asked("GET", PATH))
    assert held is not None
    assert isinstance(held.body, bytes)
    assert read(held.body).version == 7


async def test_a_patch_renews_like_the_equivalent_put(world: World) -> None:
    world.passed("PATCH", lease())
    patch: Json = {"spec": {"renewTime": "2026-01-02T03:04:15.000000Z"}}

    def send(user: str, content_type: str = MERGE_PATCH) -> str:
        answer = world.leases.answer(user, asked("PATCH", PATH, patch, content_type=content_type))
        assert answer is not None
        assert isinstance(answer.body, bytes)
        return read(answer.body).fields.child("spec").text("renewTime")

    assert send(OWN) == patch["spec"]["renewTime"]
    for user, content_type in ((OTHER, MERGE_PATCH), (OWN, "application/apply-patch+yaml")):
        with refuses(503):
            send(user, content_type)
    patch["spec"]["holderIdentity"] = "pod-2"
    with refuses(503):
        send(OWN)


async def test_after_a_restart_the_holder_renews_at_the_clouds_version(
    world: World, access: DiskAccess, device: Device
) -> None:
    """The disk has the Lease as of the election; kill -9 leaves no final write."""
    world.passed("PUT", lease())
    await world.written()
    device.batches.clear()
    for version in range(8, 20):
        world.passed("PUT", lease(version))
    await world.written()
    assert not device.batches, "a renewal is no change"
    again = await World(access).open()
    assert again.refused(lease(20), OTHER) == 503
    assert again.refused(lease(20, "pod-2")) == 503
    again.now += 14.0
    assert again.renew(lease(19)) == {"version": 19, "holder": "pod-1"}
    assert again.refused(lease(18)) == 409
    again.now += 15.1
    assert again.refused(lease(19)) == 503
    later = await World(access).open()
    later.now += 15.1
    assert later.refused(lease(19)) == 503, "it has the time of one Lease, from the start on"


@pytest.mark.parametrize("status", [404, 409])
async def test_after_a_restart_a_former_holder_does_not_renew(
    world: World, access: DiskAccess, status: int
) -> None:
    world.passed("PUT", lease())
    await world.written()
    world.passed("PUT", {}, status=status)
    await world.written()
    assert (await World(access).open()).renew(lease()) is None


async def test_after_a_restart_the_last_of_two_holders_with_one_service_account_renews(
    world: World, access: DiskAccess
) -> None:
    """Pods of one Deployment have the same service account."""
    for holder in ("pod-1", "pod-9"):
        world.passed("PUT", lease(holder=holder, version=8 if holder == "pod-9" else 7))
        await world.written()
    assert (await World(access).open()).renew(lease(8, "pod-9")) == {"version": 8, "holder": "pod-9"}


async def test_after_a_restart_a_lease_held_elsewhere_is_refused(world: World, access: DiskAccess) -> None:
    world.passed("PUT", lease())
    world.passed("GET", lease(8, "pod-9"))
    await world.written()
    assert (await World(access).open()).refused(lease(8)) == 503


async def test_an_unreadable_row_is_ignored(access: DiskAccess) -> None:
    before = World(access)
    await before.open()
    before.leases._rows.put("shop/web", b"[]")
    await before.written()
    again = await World(access).open()
    assert again.renew(lease()) is None
    await again.written()
    assert not await access.rows(TABLE)


async def test_lower_versions_after_a_cluster_restore_are_accepted(world: World, access: DiskAccess) -> None:
    world.passed("PUT", lease(70))
    world.leases.forget_all()
    await world.written()
    assert (await World(access).open()).renew(lease()) is None
    world.passed("PUT", lease(7))
    assert world.renew(lease(7)) is not None


async def test_a_lease_is_renewed_by_its_holder_alone(world: World) -> None:
    world.passed("PUT", lease())
    assert world.refused(lease(holder="pod-2")) == 503
    assert world.refused(lease(holder="")) == 503
    assert world.refused(lease(), OTHER) == 503
    assert world.refused(lease(version=6)) == 409
    assert world.refused({**lease(), "metadata": {"name": "db"}}) == 400
    assert world.renew(lease()) is not None


@pytest.mark.parametrize(
    ("method", "document", "status"),
    [("GET", lease(8, "pod-9"), 200), ("PUT", {}, 409), ("GET", {}, 404), ("PUT", lease(8, "pod-9"), 200)],
)
async def test_a_former_holder_does_not_renew(world: World, method: str, document: Json, status: int) -> None:
    world.passed("PUT", lease())
    world.passed(method, document, OTHER if method == "PUT" else OWN, status)
    with contextlib.suppress(StatusError):
        assert world.renew(lease()) is None


async def test_an_older_response_or_one_to_a_caller_changes_nothing(world: World) -> None:
    world.passed("PUT", lease())
    world.passed("GET", lease())
    world.passed("GET", lease(6, "pod-9"))
    world.passed("GET", {}, OTHER, 403)
    assert world.renew(lease()) is not None


async def test_a_holder_that_was_silent_too_long_loses_the_lease(world: World) -> None:
    world.passed("PUT", lease())
    world.now += 15.1
    assert world.refused(lease()) == 503


async def test_a_lease_that_no_rule_names_is_not_stored(world: World) -> None:
    world.leases.named = set()
    world.passed("PUT", lease())
    assert world.renew(lease()) is None
    world.leases.named = {("shop", "web")}
    assert world.renew(lease()) is None
    world.passed("PUT", lease())
    world.leases.named = {("shop", "other")}
    assert world.renew(lease()) is None


async def test_a_protobuf_lease_is_returned_in_each_encoding(world: World) -> None:
    obj = in_protobuf("coordination.k8s.io/v1", "Lease", "web", "shop", resourceVersion="7")
    obj.fields.child("spec").set("holderIdentity", "pod-1")
    body = body_of(obj)
    answer = RawResponse(200, {"content-type": PROTOBUF}, body)
    world.leases.cache_lease(OWN, asked("PUT", PATH), answer)
    for accept in (PROTOBUF, JSON):
        for method in ("PUT", "GET"):
            given = world.leases.answer(OWN, asked(method, PATH, body, accept=accept, content_type=PROTOBUF))
            assert given is not None
            assert given.headers["Content-Type"] == accept


async def test_a_lease_beyond_the_size_bound_is_not_stored(world: World) -> None:
    reached = metrics.BOUNDS_REACHED.labels("lease of a pod")
    before = value_of(reached)
    world.passed("PUT", lease(filler="x" * MAX_LEASE))
    assert world.renew(lease()) is None
    world.passed("PUT", lease())
    assert world.refused(lease(filler="x" * MAX_LEASE)) == 503
    assert value_of(reached) - before == 2
