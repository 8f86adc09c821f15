"""A Node that is deleted and registered again, with the real garbage collector and a real kubelet behind the hub."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kube.json_type import Json
from tests.cloud.hollow import HollowKubelet
from tests.cloud.kubeconfig import write_kubeconfig
from tests.cloud.real import RealCloud
from tests.hub.support.objects import set_rules
from tests.hub.support.outage import STARTED, Outage
from tests.hub.support.site import controlled_site


@pytest.fixture
def site(tmp_path: Path, cloud_programs: dict[str, Path]) -> Iterator[tuple[RealCloud, Outage]]:
    with controlled_site(tmp_path, cloud_programs, ["garbage-collector-controller"]) as made:
        yield made


def test_the_lease_of_a_recreated_node_refers_to_the_new_node(
    site: tuple[RealCloud, Outage], cloud_programs: dict[str, Path], tmp_path: Path
) -> None:
    """The hub once recreated the former Node's Lease each time that the garbage collector had deleted it."""

    def owner(lease: Json) -> str:
        return str((lease["metadata"].get("ownerReferences") or [{}])[0].get("uid"))

    cloud, outage = site
    node = outage.hub.node
    set_rules(cloud, cache_agents="hollow-kubelet")
    kubeconfig = write_kubeconfig(tmp_path / "component.kubeconfig", outage.hub.url)
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    with HollowKubelet(node, kubeconfig, tmp_path, cloud_programs) as kubelet:
        former = kubelet.wait_ready(cloud.admin)
        uid = former["metadata"]["uid"]
        first = cloud.admin.wait_for(leases, node, lambda lease: owner(lease) == uid, timeout=STARTED)
        cloud.admin.delete(f"/api/v1/nodes/{node}")
        made = cloud.admin.post(
            "/api/v1/nodes", {"metadata": {"name": node, "labels": former["metadata"]["labels"]}}
        )
        assert made["metadata"]["uid"] != uid
        new = cloud.admin.wait_for(
            leases, node, lambda lease: owner(lease) == made["metadata"]["uid"], timeout=STARTED
        )
        assert new["metadata"]["uid"] != first["metadata"]["uid"]
        renewed = new["spec"]["renewTime"]
        cloud.admin.wait_for(
            leases,
            node,
            lambda lease: (
                lease["metadata"]["uid"] == new["metadata"]["uid"] and lease["spec"]["renewTime"] > renewed
            ),
            timeout=STARTED,
        )
