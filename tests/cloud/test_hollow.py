"""Hollow components, directly against the real API server."""

from __future__ import annotations

from pathlib import Path

import pytest

from kube.json_type import Json
from tests.cloud.hollow import HollowKubelet, HollowProxy, is_ready
from tests.cloud.processes import ProcessFailedError
from tests.cloud.real import RealCloud

TIMEOUT = 30.0
"""Seconds; for what takes one."""


@pytest.mark.parametrize(
    ("node", "ready"),
    [
        ({}, False),
        ({"status": {"conditions": [{"type": "DiskPressure", "status": "True"}]}}, False),
        ({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}, False),
        ({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, True),
    ],
)
def test_is_ready(node: Json, ready: bool) -> None:
    assert is_ready(node) is ready


@pytest.mark.parametrize("content_type", ["application/vnd.kubernetes.protobuf", "application/json"])
def test_a_kubelet_registers_a_ready_node_and_cleans_up(
    real_cloud: RealCloud, cloud_programs: dict[str, Path], tmp_path: Path, node: str, content_type: str
) -> None:
    kubeconfig = real_cloud.node_kubeconfig(node)
    before = leftovers()
    with HollowKubelet(
        node, kubeconfig, tmp_path, cloud_programs, labels={"a": "b"}, content_type=content_type
    ) as kubelet:
        ready = kubelet.wait_ready(real_cloud.admin, TIMEOUT)
        assert ready["metadata"]["labels"]["a"] == "b"
        assert leftovers() - before
    assert not kubelet.process.running
    assert leftovers() <= before


def test_a_kubelet_that_cannot_register_is_told(
    real_cloud: RealCloud, cloud_programs: dict[str, Path], tmp_path: Path, node: str
) -> None:
    stranger = real_cloud.node_kubeconfig(f"{node}-stranger")
    with HollowKubelet(node, stranger, tmp_path, cloud_programs) as kubelet:
        kubelet.process.wait_for_line("Unable to register node with API server", TIMEOUT)
        with pytest.raises(TimeoutError, match="it is not there") as caught:
            kubelet.wait_ready(real_cloud.admin, timeout=0.05)
    assert f"hollow-kubelet-{node} did not make its node Ready" in "".join(caught.value.__notes__)


@pytest.mark.usefixtures("hub_rbac")
def test_a_proxy_reads_all_it_needs(
    real_cloud: RealCloud, cloud_programs: dict[str, Path], tmp_path: Path, node: str
) -> None:
    mark = real_cloud.audit_mark()
    with HollowProxy(node, real_cloud.node_kubeconfig(node), tmp_path, cloud_programs) as proxy:
        proxy.wait_synced(TIMEOUT)
        watched = {
            each.uri.split("?")[0]
            for each in real_cloud.audit(mark)
            if (each.user_agent, each.verb, each.code) == ("hollow-proxy", "watch", 200)
        }
    assert watched == {
        "/api/v1/services",
        "/apis/discovery.k8s.io/v1/endpointslices",
        "/apis/networking.k8s.io/v1/servicecidrs",
    }


def test_a_proxy_that_may_not_read_is_told(
    real_cloud: RealCloud, cloud_programs: dict[str, Path], tmp_path: Path
) -> None:
    stranger = real_cloud.kubeconfig("stranger", real_cloud.authority.issue_client("stranger"))
    with HollowProxy("edge", stranger, tmp_path, cloud_programs) as proxy:
        proxy.process.wait_for_line("services is forbidden", TIMEOUT)
        with pytest.raises(ProcessFailedError, match="said nothing that matches"):
            proxy.wait_synced(timeout=0.05)


def leftovers() -> set[Path]:
    """The files that kubemark writes below /tmp, wherever the test's own folder is."""
    return {*Path("/tmp").glob("hollow-kubelet.*"), *Path("/tmp").glob("kubelet_remote_*.sock")}  # noqa: S108 - kubemark's fixed place
