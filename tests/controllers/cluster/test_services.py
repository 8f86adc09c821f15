"""Services as they are read."""

from __future__ import annotations

import pytest

from controllers.cluster.services import SERVICES, Owner, Service, read_service
from kube.json_type import Json


def test_a_service() -> None:
    owners = [
        {"kind": "Other", "uid": "x"},
        {"kind": "ServiceGrid", "name": "g", "uid": "u", "controller": True},
    ]
    service = read_service(
        {
            "metadata": {
                "namespace": "ns",
                "name": "s",
                "annotations": {"openyurt.io/topologyKeys": "openyurt.io/nodepool"},
                "labels": {"superedge.io/grid-selector": "g"},
                "ownerReferences": owners,
                "deletionTimestamp": "2026-01-01T00:00:00Z",
            }
        }
    )
    assert service == Service(
        "ns",
        "s",
        topology="openyurt.io/nodepool",
        owner=Owner("ServiceGrid", "g", "u"),
        grid="g",
        deleting=True,
    )
    assert list(SERVICES.indexers["owner"](service)) == ["u"]


@pytest.mark.parametrize(
    ("topology", "in_pool"),
    [
        ("openyurt.io/nodepool", True),
        ("kubernetes.io/zone", True),
        ("kubernetes.io/hostname", False),
        ("topology.kubernetes.io/zone", False),
        ("", False),
        (None, False),
    ],
)
def test_which_topologies_mean_the_pool(topology: str | None, in_pool: bool) -> None:
    assert Service("ns", "s", topology=topology).in_pool is in_pool


@pytest.mark.parametrize(
    "obj",
    [
        {},
        {"metadata": {"annotations": {"openyurt.io/topologyKeys": 5}, "labels": []}},
        {"metadata": {"ownerReferences": [{"controller": "yes"}, None]}},
    ],
)
def test_garbage_says_nothing(obj: Json) -> None:
    service = read_service(obj)
    assert (service.topology, service.owner, service.grid) == (None, None, "")
    assert list(SERVICES.indexers["owner"](service)) == []
