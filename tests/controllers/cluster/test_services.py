"""Services as they are read."""

from __future__ import annotations

from controllers.cluster.services import SERVICES, Owner, Service, read_service


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
