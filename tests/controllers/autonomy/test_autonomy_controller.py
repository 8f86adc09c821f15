"""Autonomous nodes that become silent, with the real API server and the real kube-controller-manager."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cloud.ports import LOOPBACK, free_port
from tests.cloud.real import RealCloud
from tests.cloud.versions import NEWER_MANIFESTS, chosen, minor_of
from tests.controllers.autonomy.support.cluster import (
    APISERVER,
    CONTROLLERS,
    MANAGER,
    TOLERATION,
    Cluster,
    autonomy,
)
from tests.controllers.conftest import MANIFESTS
from tests.controllers.support.process import ManagerProcess
from tests.controllers.support.scene import NODES
from tests.controllers.support.webhook_service import CONFIGURATION

pytestmark = [pytest.mark.real]

DURATION = "node.openyurt.io/autonomy-duration"
DAY = 24 * 60 * 60
FOR_EVER = {"operator": "Exists", "effect": "NoExecute"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, cloud_programs: dict[str, Path]) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("autonomy")
    with RealCloud(
        folder, cloud_programs, controllers=CONTROLLERS, apiserver_flags=APISERVER, manager_flags=MANAGER
    ) as cloud:
        cloud.apply(MANIFESTS)
        account = cloud.kubeconfig("account", token=cloud.token("kube-system", "edgehub-manager"))
        port = free_port()
        flags = (
            "--controllers=autonomy,configbindingwebhook",
            *("--webhook-port", str(port)),
            f"--default-toleration={TOLERATION}",
        )
        call_by_url(cloud, f"https://{LOOPBACK}:{port}")
        with ManagerProcess(folder, account, *flags) as manager:
            manager.wait_until_leading()
            with Cluster(cloud, manager) as made:
                made.until(lambda: trusted_webhooks(cloud) == expected_webhooks())
                yield made
            assert manager.metric("edgehub_manager_writes_total", code="403") == 0
            assert manager.metric("edgehub_manager_writes_total", code="422") == 0


def call_by_url(cloud: RealCloud, url: str) -> None:
    """Make the API server call the webhooks by URL: it cannot reach a Service here."""
    webhooks = cloud.admin.get(CONFIGURATION)["webhooks"]
    for each in webhooks:
        each["clientConfig"] = {"url": url + each["clientConfig"]["service"]["path"]}
    cloud.admin.patch(CONFIGURATION, {"webhooks": webhooks})


def trusted_webhooks(cloud: RealCloud) -> set[str]:
    """Return the webhooks in the manager's configuration; empty until it has written the CA."""
    webhooks = cloud.admin.get(CONFIGURATION)["webhooks"]
    trusted = all(each["clientConfig"].get("caBundle") for each in webhooks)
    return {each["name"] for each in webhooks} if trusted else set()


def expected_webhooks() -> set[str]:
    """Return the expected webhooks: never the webhook together with the policy that replaces it."""
    has_policies = minor_of(chosen()) >= NEWER_MANIFESTS["autonomy-endpoints.yaml"]
    return {"configbinding.edgehub.io", *(() if has_policies else ("autonomy-endpoints.edgehub.io",))}


def test_pods_and_endpoints_of_a_silent_autonomous_node_stay(
    cluster: Cluster,
) -> None:
    plain, node = cluster.heard_node(), cluster.heard_node(**{DURATION: "24h"})
    cluster.sees(NODES, node, autonomy("True", "NodeAutonomous"))
    cluster.until(lambda: cluster.is_held(node))
    lost, stays = cluster.pod(plain), cluster.pod(node)
    own = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "operator": "Exists"}
    hasty, daemon = cluster.pod(node, {**own, "tolerationSeconds": 2}), cluster.pod(node, FOR_EVER)
    cluster.until(lambda: cluster.tolerated(stays) == {DAY})
    cluster.until(lambda: cluster.tolerated(hasty) == {2, DAY})
    before = cluster.slices_of(stays), cluster.slices_of(daemon)

    cluster.take_away(plain, node)
    for gone in (lost, hasty):
        cluster.waits_for_end(cluster.pods, gone)
    time.sleep(3 * TOLERATION)  # no event shows that nothing happens
    assert (cluster.slices_of(stays), cluster.slices_of(daemon)) == before
    assert cluster.is_ready(stays)
    assert cluster.tolerated(daemon) == {None}

    cluster.bring_back(node)
    cluster.admin.delete(f"{NODES}/{node}")
    cluster.until(lambda: not cluster.is_held(node))
    cluster.waits_for_end(
        cluster.pods, stays, patience=180
    )  # kube-controller-manager allows 40 s for the node to return, and polls every 20 s


def test_pods_are_evicted_or_unready_when_the_autonomy_duration_is_over(cluster: Cluster) -> None:
    node = cluster.heard_node(**{DURATION: f"{2 * TOLERATION}s"})
    cluster.until(lambda: cluster.is_held(node))
    pod, daemon = cluster.pod(node), cluster.pod(node, FOR_EVER)
    cluster.until(lambda: cluster.tolerated(pod) == {2 * TOLERATION})
    cluster.take_away(node)
    assert cluster.is_ready(daemon)
    cluster.sees(NODES, node, autonomy("False", "AutonomyOver"))
    cluster.waits_for_end(cluster.pods, pod)
    cluster.until(lambda: [each["conditions"]["ready"] for each in cluster.endpoints_of(daemon)] == [False])

    cluster.bring_back(node)
    cluster.sees(NODES, node, autonomy("True", "NodeAutonomous"))
    cluster.until(lambda: cluster.is_held(node))


def test_an_annotation_added_or_removed_while_the_node_is_silent_applies(cluster: Cluster) -> None:
    node = cluster.heard_node()
    saved, daemon = cluster.pod(node), cluster.pod(node, FOR_EVER)
    mark = cluster.cloud.audit_mark()
    cluster.take_away(node)
    cluster.annotate(node, **{DURATION: "24h"})
    cluster.until(lambda: cluster.tolerated(saved) == {DAY})
    time.sleep(2 * TOLERATION)  # the earlier scheduled eviction is cancelled
    assert cluster.tolerated(saved) == {DAY}
    assert not cluster.is_ready(daemon), "it was made unready before its node was autonomous"

    cluster.annotate(node, **{DURATION: None})
    cluster.waits_for_end(cluster.pods, saved)
    cluster.sees(
        NODES, node, lambda obj: all(each["type"] != "Autonomy" for each in obj["status"]["conditions"])
    )
    assert not cluster.is_held(node)
    assert len([each for each in cluster.writes(mark) if each.uri.startswith(f"{cluster.pods}/{saved}")]) == 4


def test_removing_the_annotation_restores_all_fields(cluster: Cluster) -> None:
    node = cluster.heard_node(**{"node.beta.openyurt.io/autonomy": "true"})
    pod = cluster.pod(node)
    cluster.until(lambda: cluster.tolerated(pod) == {None})
    cluster.annotate(node, **{"node.beta.openyurt.io/autonomy": None, DURATION: "soon"})
    cluster.sees(NODES, node, autonomy("False", "InvalidAutonomyDuration"))
    cluster.until(lambda: cluster.tolerated(pod) == {TOLERATION})
    assert "annotations" not in cluster.admin.get(f"{cluster.pods}/{pod}")["metadata"]
    assert not cluster.is_held(node)
    cluster.annotate(node, **{DURATION: None})
    cluster.sees(
        NODES, node, lambda obj: all(each["type"] != "Autonomy" for each in obj["status"]["conditions"])
    )
