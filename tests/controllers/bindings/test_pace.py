"""The controller's write rate, on a virtual clock: a limit of workloads per second, and one status for many changes."""

from __future__ import annotations

import asyncio
import copy
import itertools

import pytest

from controllers.bindings.binding import BINDING_TYPE
from controllers.bindings.config_binding_controller import (
    CONTEST_PAUSE,
    RETRY,
    STATUS_DELAY,
    WRITES_A_SECOND,
    ConfigBindingController,
    WriteLimit,
)
from controllers.bindings.workloads import WORKLOAD_TYPES
from kube.json_type import Json
from tests.controllers.support.pretended import PretendedCluster, working
from tests.controllers.support.workloads import DEPLOYMENT, image


def deployment(number: int) -> Json:
    """Return a Deployment of a YurtAppSet with many Deployments."""
    made = copy.deepcopy(DEPLOYMENT)
    owner = {
        "apiVersion": "apps.openyurt.io/v1beta1",
        "kind": "YurtAppSet",
        "name": "shop",
        "controller": True,
    }
    made["metadata"] |= {"name": f"web-{number}", "ownerReferences": [owner]}
    return made


def binding(tag: str, generation: int) -> Json:
    subject = {"apiVersion": "apps.openyurt.io/v1beta1", "kind": "YurtAppSet", "name": "shop", "pools": ["*"]}
    return {
        "metadata": {"namespace": "ns", "name": "shop", "generation": generation},
        "spec": {"subject": subject, "items": [image(tag)]},
    }


def written(cluster: PretendedCluster, resource: str) -> list[float]:
    """Return the times at which objects of a resource were patched."""
    return [at for at, path in cluster.patches if f"/{resource}/" in path]


@pytest.mark.looptime
async def test_all_workloads_are_written_within_the_limit_per_second() -> None:
    many = 110
    cluster = PretendedCluster()
    for number in range(many):
        cluster.put(WORKLOAD_TYPES["Deployment"], deployment(number))
    async with working(cluster, ConfigBindingController):
        cluster.put(BINDING_TYPE, binding("app:2", 1))
        await asyncio.sleep(60)
        first = written(cluster, "deployments")
        # A change during a rollout does not raise the rate.
        cluster.put(BINDING_TYPE, binding("app:3", 2))
        await asyncio.sleep(2)
        cluster.put(BINDING_TYPE, binding("app:4", 3))
        await asyncio.sleep(60)
    times = written(cluster, "deployments")
    assert len(first) == many
    assert many * 2 < len(times) < many * 3, "those that the middle one had not reached are written once"
    seconds = zip(times, times[WRITES_A_SECOND:], strict=False)
    assert min(later - earlier for earlier, later in seconds) > 1 - 1e-6
    # The rate is not below the limit either.
    assert first[-1] - first[0] == pytest.approx((many - 1) // WRITES_A_SECOND, abs=0.1)


@pytest.mark.looptime
async def test_changes_of_many_workloads_cause_few_status_writes() -> None:
    cluster = PretendedCluster()
    for number in range(WRITES_A_SECOND):
        cluster.put(WORKLOAD_TYPES["Deployment"], deployment(number))
    async with working(cluster, ConfigBindingController):
        cluster.put(BINDING_TYPE, binding("app:2", 1))
        await asyncio.sleep(60)
    statuses = written(cluster, "yurtappconfigbindings")
    assert len(written(cluster, "deployments")) == WRITES_A_SECOND
    assert 1 <= len(statuses) <= 3
    gaps = [later - earlier for earlier, later in itertools.pairwise(statuses)]
    assert all(gap > STATUS_DELAY - 1e-6 for gap in gaps)


@pytest.mark.looptime
async def test_an_item_reverted_by_a_webhook_is_retried_with_pauses() -> None:
    class OtherWebhook(PretendedCluster):
        """A cluster with an admission step that sets the image of a workload after the binding's webhook."""

        def _patch(self, path: str, patch: Json) -> Json:
            if "/deployments/" in path:
                patch = copy.deepcopy(patch)
                patch["spec"] = {
                    "template": {"spec": {"containers": DEPLOYMENT["spec"]["template"]["spec"]["containers"]}}
                }
            return super()._patch(path, patch)

    cluster = OtherWebhook()
    cluster.put(WORKLOAD_TYPES["Deployment"], deployment(1))
    async with working(cluster, ConfigBindingController):
        cluster.put(BINDING_TYPE, binding("app:2", 1))
        await asyncio.sleep(1.5 * CONTEST_PAUSE)
    first, *later = written(cluster, "deployments")
    expected = [
        RETRY,
        3 * RETRY,
        3 * RETRY + CONTEST_PAUSE,
        4 * RETRY + CONTEST_PAUSE,
        6 * RETRY + CONTEST_PAUSE,
    ]
    assert [at - first for at in later] == pytest.approx(expected, abs=1)


@pytest.mark.looptime
async def test_a_burst_is_limited_to_one_seconds_writes() -> None:
    limit = WriteLimit(3)
    assert [round(limit.reserve(), 6) for _ in range(7)] == [0, 0, 0, 1, 1, 1, 2]
    await asyncio.sleep(2.5)
    assert [round(limit.reserve(), 6) for _ in range(3)] == [0, 0, 0.5]
