"""Pods whose probes name a host are refused in namespaces with the label, on the real API server."""

from __future__ import annotations

from typing import Any

import pytest

from kube.json_type import Json
from tests.cloud.rest import STRATEGIC_PATCH
from tests.controllers.conftest import MANIFESTS
from tests.controllers.support.scene import Scene

pytestmark = [pytest.mark.real]

HTTP, TCP = {"port": 10261, "host": "127.0.0.1"}, {"port": 10261, "host": "localhost"}
AS_KUBELET = [
    {"name": "User-Agent", "value": "kubelet/v1.36.3 (linux/amd64) kubernetes/0000000"},
    {"name": "Host", "value": "localhost"},
]


def create(scene: Scene, fields: Json, *, where: str = "containers", **meta: Any) -> int:
    """Return the status of creating a pod whose container has these fields."""
    app = {"name": "app", "image": "app:1"}
    spec = {"containers": [app], where: [{**app, "name": "probed", **fields}]}
    pod = {"metadata": {"name": scene.name("pod"), **meta}, "spec": {**spec, "nodeName": "n1"}}
    return scene.admin.request("POST", f"/api/v1/namespaces/{scene.namespace}/pods", body=pod).status


@pytest.fixture
def refusing(scene: Scene) -> Scene:
    """Return a scene in whose namespace such pods are refused."""
    refuse(scene, "edgehub.io/probe-hosts", "refuse")
    return scene


def refuse(scene: Scene, label: str, value: str) -> None:
    """Label the namespace, and wait until the policy is enforced."""
    scene.admin.patch(f"/api/v1/namespaces/{scene.namespace}", {"metadata": {"labels": {label: value}}})
    scene.until(lambda: create(scene, {"livenessProbe": {"httpGet": HTTP}}) == 403)


@pytest.mark.since(34, "Pod Security that looks at the hosts of probes")
def test_pod_security_of_this_version_refuses_such_pods_too(scene: Scene) -> None:
    refuse(scene, "pod-security.kubernetes.io/enforce", "baseline")
    assert create(scene, {}) == 201


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"livenessProbe": {"httpGet": HTTP}}, "containers"),
        ({"readinessProbe": {"tcpSocket": TCP}}, "containers"),
        ({"startupProbe": {"httpGet": {**HTTP, "host": "10.0.0.1"}}}, "containers"),
        ({"livenessProbe": {"httpGet": HTTP}, "restartPolicy": "Always"}, "initContainers"),
        ({"lifecycle": {"postStart": {"httpGet": HTTP}}}, "containers"),
        ({"lifecycle": {"preStop": {"httpGet": HTTP}}}, "containers"),
        ({"livenessProbe": {"httpGet": {**HTTP, "httpHeaders": AS_KUBELET}}}, "containers"),
        ({"readinessProbe": {"httpGet": {**HTTP, "host": "localhost"}}}, "containers"),
        ({"readinessProbe": {"httpGet": {**HTTP, "host": "::1"}}}, "containers"),
        ({"readinessProbe": {"httpGet": {**HTTP, "host": "169.254.2.1", "scheme": "HTTPS"}}}, "containers"),
        ({"lifecycle": {"postStart": {"tcpSocket": TCP}}}, "containers"),
        ({"lifecycle": {"preStop": {"tcpSocket": TCP}}}, "containers"),
        ({"lifecycle": {"preStop": {"httpGet": HTTP}}, "restartPolicy": "Always"}, "initContainers"),
    ],
)
def test_a_probe_or_hook_that_names_a_host_is_refused(refusing: Scene, fields: Json, where: str) -> None:
    assert create(refusing, fields, where=where) == 403


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"livenessProbe": {"httpGet": {"port": 80}}, "readinessProbe": {"exec": {"command": ["true"]}}},
        {"startupProbe": {"grpc": {"port": 80}}, "lifecycle": {"preStop": {"sleep": {"seconds": 1}}}},
    ],
    ids=["none", "httpGet and exec", "grpc and sleep"],
)
def test_a_pod_whose_probes_name_no_host_is_created(refusing: Scene, fields: Json) -> None:
    assert create(refusing, fields) == 201


def test_an_ephemeral_container_cannot_have_a_probe_or_hook(refusing: Scene) -> None:
    """Therefore the policy only checks the creation of pods."""
    assert create(refusing, {}) == 201
    (pod,) = refusing.admin.get(f"/api/v1/namespaces/{refusing.namespace}/pods")["items"]
    path = f"/api/v1/namespaces/{refusing.namespace}/pods/{pod['metadata']['name']}/ephemeralcontainers"
    for fields in ({"livenessProbe": {"httpGet": HTTP}}, {"lifecycle": {"preStop": {"httpGet": HTTP}}}, {}):
        added = {"name": "debug", "image": "app:1", **fields}
        patch = {"spec": {"ephemeralContainers": [added]}}
        answer = refusing.admin.request("PATCH", path, body=patch, headers={"Content-Type": STRATEGIC_PATCH})
        assert answer.status == (422 if fields else 200)


def test_a_mirror_pod_with_a_probe_host_is_created(refusing: Scene) -> None:
    """kubeadm's control plane pods probe themselves on loopback."""
    mark = {"kubernetes.io/config.mirror": "x", "kubernetes.io/config.source": "file"}
    assert create(refusing, {"livenessProbe": {"httpGet": HTTP}}, annotations=mark) == 201


def test_the_policy_refuses_nothing_without_the_label_and_applies_twice(scene: Scene) -> None:
    said = scene.cloud.apply(MANIFESTS / "probe-hosts.yaml")
    assert "configured" not in said
    assert create(scene, {"livenessProbe": {"httpGet": HTTP}}) == 201
