"""The chart and the plain manifests install the manager: started by its pods' command line and environment, it
leads."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from scripts.building.render import MANIFESTS
from tests.cloud.real import RealCloud
from tests.cloud.versions import served
from tests.controllers.support.process import interpreter
from tests.deploy.support.charts import CHART, Release
from tests.deploy.support.pod import Pod, pod_of

EDGE = "edge-system"

type StartPod = Callable[[str], Pod]


@pytest.fixture
def start_pod(empty_cloud: RealCloud, tmp_path: Path) -> StartPod:
    """Start a pod of the Deployment in a namespace, with the environment of `scripts/manager` in place of an image."""

    def start(namespace: str) -> Pod:
        brought = {"PATH": str(Path(interpreter()).parent), "HOME": "/tmp"}  # noqa: S108 - as the image has it
        return Pod(empty_cloud, pod_of(deployment(empty_cloud, namespace)), tmp_path, brought)

    return start


def deployment(cloud: RealCloud, namespace: str) -> Mapping[str, Any]:
    return cloud.admin.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/edgehub-manager")


def leads(cloud: RealCloud, namespace: str) -> bool:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/edgehub-manager"
    return bool(cloud.admin.get(path)["spec"]["holderIdentity"])


def test_helm_installs_upgrades_and_uninstalls_the_chart(
    empty_cloud: RealCloud, release: Callable[[str], Release], start_pod: StartPod
) -> None:
    def there(cloud: RealCloud, path: str) -> bool:
        return cloud.admin.request("GET", path).status == 200

    # An existing kind, such as OpenYurt's, is not changed.
    foreign = (
        (CHART / "crds" / "nodepools.yaml").read_text().replace("  labels:\n", "  labels:\n    a: b\n", 1)
    )
    empty_cloud.apply(foreign)
    edgehub = release(EDGE)
    own_rules = {"create": True, "name": "own-rules", "data": {"masterservice": "edge-agent"}}
    edgehub.install({"rules": own_rules, "hub": {"enabled": True}})
    empty_cloud.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    kind = empty_cloud.admin.get(f"{crds}/nodepools.apps.openyurt.io")
    assert kind["metadata"]["labels"]["a"] == "b"
    rules = empty_cloud.admin.get(f"/api/v1/namespaces/{EDGE}/configmaps/own-rules")
    assert rules["data"] == own_rules["data"]
    assert there(empty_cloud, f"/apis/apps/v1/namespaces/{EDGE}/daemonsets/edgehub")
    with start_pod(EDGE) as pod:
        pod.wait_until_ready()
        pod.wait_for_line(" leads$")
        assert leads(empty_cloud, EDGE)

    cluster_roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    assert there(empty_cloud, f"{cluster_roles}/edgehub:manager-triggers")
    edgehub.install({"manager": {"replicas": 1, "duties": {"triggers": False}}})
    assert deployment(empty_cloud, EDGE)["spec"]["replicas"] == 1
    for path in (
        f"{cluster_roles}/edgehub:manager-triggers",
        f"/api/v1/namespaces/{EDGE}/configmaps/own-rules",
        f"/apis/apps/v1/namespaces/{EDGE}/daemonsets/edgehub",
        f"/apis/policy/v1/namespaces/{EDGE}/poddisruptionbudgets/edgehub-manager",
    ):
        assert not there(empty_cloud, path), path

    manifest = edgehub.manifest()
    present = edgehub.left(manifest)
    assert {"deployment.apps/edgehub-manager", "clusterrole.rbac.authorization.k8s.io/edgehub:manager"} < set(
        present
    )
    edgehub.uninstall()
    assert edgehub.left(manifest) == []
    assert there(empty_cloud, f"{crds}/nodepools.apps.openyurt.io"), "a kind goes with all its objects"


def test_a_manager_without_controllers_is_ready(
    empty_cloud: RealCloud, release: Callable[[str], Release], start_pod: StartPod
) -> None:
    duties = [
        "triggers",
        "serviceGrids",
        "bindings",
        "webhook",
        "autonomy",
        "hubCertificates",
        "podUpdates",
        "kinds",
    ]
    edgehub = release(EDGE)
    edgehub.install({"manager": {"duties": dict.fromkeys(duties, False)}})
    with start_pod(EDGE) as pod:
        pod.wait_until_ready()
    edgehub.uninstall()


@pytest.mark.usefixtures("plain_manifests")
def test_helm_adopts_plain_manifests_only_on_request(
    release: Callable[[str], Release],
) -> None:
    edgehub = release("kube-system")
    with pytest.raises(AssertionError, match="exists and cannot be imported into the current release"):
        edgehub.install({})
    edgehub.install({}, flags=["--take-ownership"])
    edgehub.uninstall()


@pytest.mark.usefixtures("plain_manifests")
def test_the_plain_manifests_install_the_same_objects_as_the_chart(
    empty_cloud: RealCloud, start_pod: StartPod
) -> None:
    def states(cloud: RealCloud) -> dict[str, str]:
        """Return, for each object of the plain manifests, the fields that change with its spec and not with its
        status."""
        files = [f"--filename={each}" for each in served(MANIFESTS)]
        found = json.loads(cloud.kubectl("get", "--output=json", *files).stdout)["items"]
        metadata = (each["metadata"] for each in found)
        return {each["uid"]: str(each.get("generation") or each["resourceVersion"]) for each in metadata}

    before = states(empty_cloud)
    empty_cloud.apply(MANIFESTS)
    assert states(empty_cloud) == before, "the second time nothing changes"
    with start_pod("kube-system") as pod:
        pod.wait_until_ready()
        pod.wait_for_line(" leads$")
        assert leads(empty_cloud, "kube-system")
