"""The table of all hubs, from the Leases written by hubs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import aiohttp
import pytest

from kube.errors import StatusError, not_found
from kube.fleet import (
    ANNOTATION,
    COLUMNS,
    LONGEST,
    FleetHub,
    HubStatus,
    fleet,
    leaders_of,
    read_fleet,
    read_progress,
    read_status,
)
from kube.http.client import ApiResponse, Client
from kube.http.http1 import Http1Session
from kube.json_type import Json
from kube.reflector import list_pages
from kube.wire.json_fields import write_json
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.faults import Refuse
from tests.kube.support.answering import AnsweringClient, Asked

NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)
GOOD = HubStatus("0.2.0", "hz", "https://a:6443", since=int(NOW.timestamp()) - 600, up=2048, down=5)


def lease(name: str, status: HubStatus | str | None = GOOD, silent: int = 5) -> Json:
    text = status.dump() if isinstance(status, HubStatus) else status
    annotations = {} if text is None else {ANNOTATION: text}
    renewed = (NOW - timedelta(seconds=silent)).isoformat()
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": "kube-node-lease", "annotations": annotations},
        "spec": {"leaseDurationSeconds": 40, "renewTime": renewed},
    }


def fleet_of(*leases: Json) -> list[FleetHub]:
    return fleet(leases, {"hz": frozenset({"n1"})}, NOW)


def test_a_healthy_hub_needs_no_attention() -> None:
    [hub] = fleet_of(lease("n1"))
    assert (hub.node, hub.role, hub.silent, hub.needs) == ("n1", "leader", None, ())
    assert dict(zip(COLUMNS, hub.cells(NOW), strict=True)) == {
        "node": "n1",
        "pool": "hz",
        "version": "0.2.0",
        "role": "leader",
        "link": "up for 10m",
        "via": "https://a:6443",
        "copies": "current",
        "waiting": "0",
        "up": "2.0 KiB",
        "down": "5 B",
        "needs": "",
    }


@pytest.mark.parametrize(
    ("status", "silent", "needs"),
    [
        (GOOD, 200, "silent for 3m20s"),
        (HubStatus("0.2.0", problems=2), 5, "problems: 2, see `edgehub status` there"),
        (HubStatus("0.2.0", rollback="hub:3: it ended"), 5, "rolled back from hub:3: it ended"),
        (HubStatus("0.2.0", waiting=7), 5, "waiting writes: 7"),
        (HubStatus("0.2.0", stale=1, oldest=int(NOW.timestamp()) - 60), 5, "stale copies: 1"),
        (HubStatus("0.1.0"), 5, "most hubs have version 0.2.0"),
        ("{", 5, "its status cannot be read"),
    ],
)
def test_a_hub_that_needs_attention_is_listed_first_with_the_reason(
    status: HubStatus | str, silent: int, needs: str
) -> None:
    hubs = fleet_of(lease("n1"), lease("n2"), lease("n3", status, silent))
    assert [each.node for each in hubs] == ["n3", "n1", "n2"]
    assert hubs[0].cells(NOW)[-1].startswith(needs)
    assert not hubs[1].needs


def test_a_silent_hub_is_listed_before_an_outdated_one() -> None:
    hubs = fleet_of(lease("a", HubStatus("0.1.0")), lease("b"), lease("c"), lease("d", silent=100))
    assert [each.node for each in hubs] == ["d", "a", "b", "c"]


def test_a_node_without_a_hub_is_not_listed() -> None:
    assert fleet_of(lease("n1", None)) == []


def test_roles_are_those_of_pools_with_leaders() -> None:
    leaders = leaders_of(
        [
            {"metadata": {"name": "hz"}, "status": {"leaderEndpoints": [{"nodeName": "n1"}]}},
            {"metadata": {"name": "sh"}, "status": {}},
            {"metadata": {"name": "bj"}},
        ]
    )
    hubs = fleet([lease("n1"), lease("n2"), lease("n3", HubStatus("0.2.0", "sh"))], leaders, NOW)
    assert [each.role for each in hubs] == ["leader", "follower", ""]


@pytest.fixture
async def cloud() -> AsyncIterator[ScriptableCloud]:
    async with ScriptableCloud() as cloud:
        yield cloud


async def test_a_deeply_nested_lease_hides_no_hub() -> None:
    """kube-apiserver accepts 5,000 levels of managedFields, and any node can write its own Lease."""
    deep: Json = {}
    for _ in range(5_000):
        deep = {"f:a": deep}
    odd = lease("n1")
    odd["metadata"]["managedFields"] = [{"fieldsV1": deep}]
    listed = write_json(
        {"kind": "LeaseList", "apiVersion": "v1", "metadata": {}, "items": [odd, lease("n2")]}
    )

    class Cloud(AnsweringClient):
        async def answer(self, asked: Asked) -> ApiResponse:
            if "nodepools" in asked.path:
                raise not_found("nodepools", "")
            return ApiResponse("application/json", listed)

    assert [each.node for each in await read_fleet(Cloud(), NOW)] == ["n1", "n2"]


async def test_each_pool_whose_nodes_get_hubs_by_a_label_has_a_line() -> None:
    said = {"type": "HubsInstalled", "reason": "Stopped", "message": "1 of 2 nodes have a hub; failed: n7"}
    pools = [("hz", [{"type": "LeaderReady"}, said]), ("sh", [{"type": "LeaderReady"}]), ("bj", None)]
    items = [{"metadata": {"name": name}, "status": {"conditions": found}} for name, found in pools]

    class Cloud(AnsweringClient):
        has_pools = True

        async def answer(self, asked: Asked) -> ApiResponse:
            if not self.has_pools:
                raise not_found("nodepools", "")
            listed = {"kind": "NodePoolList", "metadata": {"resourceVersion": "1"}, "items": items}
            return ApiResponse("application/json", write_json(listed))

    cloud = Cloud()
    assert await read_progress(cloud) == ["pool hz: Stopped: 1 of 2 nodes have a hub; failed: n7"]
    cloud.has_pools = False
    assert await read_progress(cloud) == []


async def test_all_pages_are_read_and_a_cluster_needs_no_node_pools(
    cloud: ScriptableCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_pages, "PAGE", 2)
    for number in range(5):
        cloud.store.create(lease(f"n{number}"))
    async with Http1Session(aiohttp.ClientSession()) as session:
        client = Client(session, cloud.url, {})
        assert [each.node for each in await read_fleet(client, NOW)] == [f"n{n}" for n in range(5)]
        cloud.faults.add(Refuse(403))
        with pytest.raises(StatusError):
            await read_fleet(client, NOW)


SAID = HubStatus(
    "0.2.0", "hz", "https://a:6443", since=5, stale=1, oldest=4, waiting=3, problems=2, up=9, down=8
)


def test_a_hub_status_survives_encoding_and_decoding() -> None:
    assert read_status(SAID.dump()) == SAID
    assert read_status(HubStatus().dump()) == HubStatus()
    assert len(SAID.dump()) < 200, "an edge link carries it"
    assert HubStatus("0.2.0").dump() == '{"version":"0.2.0"}', "what has not happened costs nothing"


def test_fields_of_a_newer_hub_are_left_out() -> None:
    assert read_status('{"version": "9.0.0", "mood": "good"}') == HubStatus("9.0.0")


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{", '{"pool": 1}', '{"waiting": "1"}', '{"waiting": true}', '{"waiting": -1}'),
        *('{"pool": "a\\u001b[2J"}', '{"pool": "' + "a" * LONGEST + '"}'),
    ],
    ids=lambda text: text[:20],
)
def test_a_malformed_hub_status_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_status(text)


def test_changed_bytes_and_ages_alone_are_not_reported() -> None:
    assert HubStatus(up=1, down=2, oldest=3).lasting() == HubStatus()
    assert SAID.lasting().waiting == 3
