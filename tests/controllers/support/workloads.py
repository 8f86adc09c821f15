"""Workloads and items of bindings, for the tests of `controllers/bindings/`."""

from __future__ import annotations

import copy
from typing import Any

from controllers.bindings.rendering.injection import BindingItem, Rendering, Target, render
from controllers.bindings.rendering.slots import Record, read_record
from kube.json_type import Json

POOL = Target("hangzhou")
DEPLOYMENT: Json = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"namespace": "ns", "name": "web", "labels": {"apps.openyurt.io/pool-name": "hangzhou"}},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "50%", "maxUnavailable": 0}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "initContainers": [{"name": "setup", "image": "setup:1"}],
                "containers": [
                    {
                        "name": "app",
                        "image": "app:1",
                        "env": [
                            {"name": "A", "value": "a"},
                            {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                        ],
                        "volumeMounts": [
                            {"name": "config", "mountPath": "/config"},
                            {"name": "data", "mountPath": "/data"},
                            {"name": "keys", "mountPath": "/keys"},
                        ],
                    },
                    {"name": "side", "image": "side:1"},
                ],
                "volumes": [
                    {"name": "config", "configMap": {"name": "default-config", "defaultMode": 420}},
                    {"name": "data", "persistentVolumeClaim": {"claimName": "default-claim"}},
                    {"name": "keys", "secret": {"secretName": "default-keys", "defaultMode": 420}},
                ],
            },
        },
    },
}
"""A workload as the API server stores it."""


def stateful_set() -> Json:
    workload = copy.deepcopy(DEPLOYMENT)
    workload["kind"] = "StatefulSet"
    del workload["spec"]["strategy"]
    workload["spec"]["serviceName"] = "web"
    workload["spec"]["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
    return workload


def daemon_set() -> Json:
    workload = copy.deepcopy(DEPLOYMENT)
    workload["kind"] = "DaemonSet"
    del workload["spec"]["strategy"], workload["spec"]["replicas"]
    workload["spec"]["updateStrategy"] = {"type": "OnDelete"}
    return workload


def items(*fields: Json, binding: str = "b") -> list[BindingItem]:
    return [BindingItem(binding, each) for each in fields]


def image(claim: str, container: str = "app") -> Json:
    return {"image": {"containerName": container, "imageClaim": claim}}


def env(container: str = "app", **claims: str) -> Json:
    return {"env": {"containerName": container, "envClaim": claims}}


def config_map(
    target: str, volume: str = "config", container: str = "app", key: str = "configMapClaim"
) -> Json:
    return {"configMap": {"containerName": container, key: volume, "configMapTarget": target}}


def claim(target: str, volume: str = "data", container: str = "app") -> Json:
    fields = {"containerName": container, "pvcSource": volume, "pvcTarget": target}
    return {"persistentVolumeClaim": fields}


def secret(target: str, volume: str = "keys", container: str = "app") -> Json:
    return {"secret": {"containerName": container, "secretSource": volume, "secretTarget": target}}


def patch(operation: str, path: str, value: Any = None) -> Json:
    """Return a patch for `render`. `path` is below the pod template's spec; None means no value."""
    fields = {"operation": operation, "path": f"/spec/template/spec{path}"}
    return {"patch": fields if value is None else {**fields, "value": value}}


def rendered(
    workload: Json, given: list[BindingItem], target: Target = POOL, record: Record | None = None
) -> Rendering:
    """Render the workload with its own record, like the controller."""
    return render(workload, read_record(workload) if record is None else record, given, target)


def container(workload: Json, name: str = "app") -> Any:
    spec = workload["spec"]["template"]["spec"]
    [found] = [each for each in [*spec["containers"], *spec["initContainers"]] if each["name"] == name]
    return found
