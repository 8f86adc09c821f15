"""Pods with kube-apiserver's default toleration for its full duration: here a minute, the shortest that the manager
does not extend; 300 s in clusters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cloud.real import RealCloud
from tests.controllers.autonomy.support.cluster import CONTROLLERS, MANAGER, Cluster
from tests.controllers.conftest import MANIFESTS
from tests.controllers.support.process import ManagerProcess

DEFAULT = 60
APISERVER = [f"--default-{taint}-toleration-seconds={DEFAULT}" for taint in ("not-ready", "unreachable")]
PATIENCE = 3 * DEFAULT

pytestmark = [pytest.mark.real, pytest.mark.timeout(3 * PATIENCE)]


@pytest.fixture
def manager(cloud: RealCloud, tmp_path: Path) -> Iterator[ManagerProcess]:
    cloud.apply(MANIFESTS)
    account = cloud.kubeconfig("account", token=cloud.token("kube-system", "edgehub-manager"))
    flags = ("--controllers=autonomy", f"--default-toleration={DEFAULT}")
    with ManagerProcess(tmp_path, account, *flags) as made:
        made.wait_until_leading()
        yield made


@pytest.fixture
def cloud(tmp_path: Path, cloud_programs: dict[str, Path]) -> Iterator[RealCloud]:
    with RealCloud(
        tmp_path, cloud_programs, controllers=CONTROLLERS, apiserver_flags=APISERVER, manager_flags=MANAGER
    ) as made:
        yield made


def test_a_manager_that_runs_before_the_default_toleration_ends_saves_the_pods(
    cloud: RealCloud, manager: ManagerProcess
) -> None:
    duration = "node.openyurt.io/autonomy-duration"
    day = 24 * 60 * 60
    with Cluster(cloud, manager) as cluster:
        plain = cluster.heard_node()
        held, unseen = (cluster.heard_node(**{duration: "24h"}) for _ in range(2))
        cluster.until(lambda: cluster.is_held(held) and cluster.is_held(unseen))
        lost, stays, forgotten = (cluster.pod(node) for node in (plain, held, unseen))
        for pod in (lost, stays, forgotten):
            assert cluster.tolerated(pod) == {DEFAULT}
            assert cluster.admin.get(f"{cluster.pods}/{pod}")["metadata"]["generation"] == 1

        cluster.take_away(plain, held)
        cluster.until(lambda: cluster.tolerated(stays) == {DEFAULT, day})
        manager.process.kill()
        cluster.take_away(unseen)
        # Evicted: the pod whose toleration ended first, and the next one, which no manager saw.
        for gone in (lost, forgotten):
            cluster.waits_for_end(cluster.pods, gone, patience=PATIENCE)
        assert cluster.tolerated(stays) == {DEFAULT, day}, "the first for a node that is not ready"
        assert cluster.is_ready(stays)
