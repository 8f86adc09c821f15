"""The doctor's findings about a cloud, for each response of the cloud."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from addons.install.checks.cloud_checks import NAMED_PODS, OwnNode, asks, check_cloud, check_pods
from addons.install.cloud import cloud
from addons.views.source_log import RBAC, RBAC_OF_NODES
from kube.json_type import Json
from tests.addons.support.small_api import anonymous, small_api
from tests.repository.support.tree import ROOT

CONFIG_MAP = "/api/v1/namespaces/kube-system/configmaps/yurt-hub-cfg"
WELL = {
    "/version": {"gitVersion": "v1.36.3", "minor": "36"},
    "/api/v1/nodes/n1": {"status": {"nodeInfo": {"kubeletVersion": "v1.35.0"}}},
    CONFIG_MAP: {"data": {"masterservice": "kubelet"}},
    "/api/v1/pods": {"items": []},
}
RULES = ("kube-system", "yurt-hub-cfg")
PORT = 10261
HERE = {"host": "127.0.0.1", "port": PORT}


async def findings_for(
    answers: Mapping[str, Any] = {}, ahead: float = 0.0, refused: frozenset[str] = frozenset()
) -> list[str]:
    """Return the findings about a cloud with these responses, whose clock is `ahead` seconds ahead."""
    date = {"Date": format_datetime(datetime.now(UTC) + timedelta(seconds=ahead), usegmt=True)}
    async with small_api({**WELL, **answers}, date, refused) as url:
        return await findings_at(url)


async def findings_at(url: str) -> list[str]:
    return [str(each) for each in await check_cloud(anonymous(url), OwnNode("n1", RULES, PORT))]


async def test_a_healthy_cloud_has_no_warnings() -> None:
    lines = await findings_for()
    assert all(line.startswith("ok ") for line in lines), lines
    assert [line.split()[1] for line in lines] == [
        "cloud",
        "clock",
        "version",
        "rights",
        "identity",
        "node",
        "rules",
        "pods",
    ]
    assert "n1, kubelet v1.35.0" in lines[5]


@pytest.mark.parametrize(
    ("answers", "line"),
    [
        ({"/version": {"gitVersion": "v1.20.0", "minor": "20+"}}, "warning  version      Kubernetes v1.20.0"),
        ({"/version": None}, "failed   cloud        http://127.0.0.1"),
        ({"/api/v1/nodes/n1": None}, "warning  node         n1 has not joined the cluster yet"),
        (
            {"/api/v1/nodes/n1": {"status": {"nodeInfo": {"kubeletVersion": "v1.32.9"}}}},
            "warning  node         n1, kubelet v1.32.9: kube-apiserver v1.36.3 takes",
        ),
        (
            {"/api/v1/nodes/n1": {"status": {"nodeInfo": {"kubeletVersion": "v1.37.0"}}}},
            "warning  node         n1, kubelet v1.37.0: kube-apiserver v1.36.3 takes",
        ),
        ({CONFIG_MAP: None}, "ok       rules        no ConfigMap kube-system/yurt-hub-cfg"),
        (
            {CONFIG_MAP: {"data": {"filter_masterservice": "???"}}},
            "warning  rules        1 bad entries in kube-system/yurt-hub-cfg, the first in filter_masterservice",
        ),
    ],
)
async def test_each_deviating_response_of_the_cloud_is_reported(
    answers: Mapping[str, Any], line: str
) -> None:
    assert any(each.startswith(line) for each in await findings_for(answers))


@pytest.mark.parametrize(("ahead", "line"), [(30, "warning  clock"), (-3600, "failed   clock")])
async def test_a_clock_that_differs_from_the_clouds_is_reported(ahead: float, line: str) -> None:
    assert any(each.startswith(line) for each in await findings_for(ahead=ahead))


@pytest.mark.parametrize(
    ("resource", "line", "manifest"),
    [
        ("services", "failed   rights       may not list services, watch services", RBAC),
        ("nodes", "warning  rights       may not read other nodes", RBAC_OF_NODES),
        ("leases", "failed   identity     may not write status and lease of n1", "this node's own"),
    ],
)
async def test_missing_permissions_are_reported_with_their_manifest(
    resource: str, line: str, manifest: str
) -> None:
    (said,) = [each for each in await findings_for(refused=frozenset({resource})) if each.startswith(line)]
    assert manifest in said


async def test_an_unreachable_cloud_ends_the_checks() -> None:
    (only,) = await findings_at("http://127.0.0.1:1")
    assert only.startswith("failed   cloud        http://127.0.0.1:1 cannot be reached")


@pytest.mark.parametrize(
    ("refused", "last"),
    [
        (frozenset[str](), "ok       token        may request"),
        (frozenset({"certificatesigningrequests"}), "failed   token        may not request"),
    ],
)
async def test_the_bootstrap_token_is_checked_before_the_node_has_an_identity(
    refused: frozenset[str], last: str
) -> None:
    async with small_api(WELL, {"Date": format_datetime(datetime.now(UTC), usegmt=True)}, refused) as url:
        lines = [str(each) for each in await check_cloud(anonymous(url), None)]
    assert [line.split()[1] for line in lines] == ["cloud", "clock", "version", "token"]
    assert lines[-1].startswith(last)


@pytest.mark.parametrize("manifest", [RBAC, RBAC_OF_NODES])
def test_the_manifests_named_in_findings_exist(manifest: str) -> None:
    assert (ROOT / manifest).is_file()


def pod_spec(http: Json, kind: str = "livenessProbe", containers: str = "containers", **more: Any) -> Json:
    return {containers: [{"name": "c", kind: {"httpGet": http}}], **more}


HOOK = {"containers": [{"name": "c", "lifecycle": {"postStart": {"httpGet": HERE}}}]}
NAMED = {
    "containers": [
        {
            "name": "c",
            "ports": [{"name": "web", "containerPort": PORT}],
            "readinessProbe": {"httpGet": {"host": "localhost", "port": "web"}},
        }
    ]
}


@pytest.mark.parametrize(
    ("pod", "asking"),
    [
        (pod_spec(HERE), True),
        (pod_spec(HERE, "startupProbe"), True),
        (pod_spec(HERE, containers="initContainers"), True),
        (HOOK, True),
        (NAMED, True),
        (pod_spec({"port": PORT}, hostNetwork=True), True),
        (pod_spec({"port": PORT}), False),
        (pod_spec({**HERE, "port": 10267}), False),
        (pod_spec({**HERE, "port": "web"}), False),
        ({"containers": [{"name": "c", "livenessProbe": {"tcpSocket": HERE}, "lifecycle": {}}]}, False),
    ],
)
def test_a_pod_whose_probes_call_the_hubs_port_is_found(pod: Json, asking: bool) -> None:
    assert asks(pod, PORT) is asking


@pytest.mark.parametrize("count", [0, 1, NAMED_PODS + 1])
async def test_the_finding_names_pods_whose_probes_call_the_hub(count: int) -> None:
    pods = [
        {"metadata": {"namespace": "default", "name": f"p{number}"}, "spec": pod_spec(HERE)}
        for number in range(count)
    ]
    async with small_api({"/api/v1/pods": {"items": pods}}) as url, cloud(anonymous(url)) as client:
        line = str(await check_pods(client, "n1", PORT))
    assert line.startswith("warning  pods" if count else "ok       pods")
    assert line.count("default/p") == min(count, NAMED_PODS)
    assert ("..." in line) is (count > NAMED_PODS)
