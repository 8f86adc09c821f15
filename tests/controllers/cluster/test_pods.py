"""Pods as they are read, whole and trimmed."""

from __future__ import annotations

import copy

from controllers.cluster.pods import PODS, RECORDS, read_pod
from kube.json_type import Json

RECORD = RECORDS["node.kubernetes.io/unreachable"]
TOLERATION = {"key": "gpu", "operator": "Exists"}
POD: Json = {
    "metadata": {
        "namespace": "ns",
        "name": "p",
        "uid": "u",
        "resourceVersion": "7",
        "annotations": {RECORD: "300", "other": "x"},
        "managedFields": [{"manager": "kubelet"}],
    },
    "spec": {"nodeName": "n1", "tolerations": [TOLERATION], "containers": [{"name": "large"}]},
    "status": {
        "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}]
    },
}


def test_a_pod() -> None:
    trimmed = PODS.transform(copy.deepcopy(POD))
    assert "containers" not in trimmed["spec"]
    for pod in (read_pod(POD), read_pod(trimmed)):
        assert (pod.namespace, pod.name, pod.node, pod.version, pod.ready) == ("ns", "p", "n1", "7", True)
        assert (pod.tolerations, pod.records) == ((TOLERATION,), {RECORD: "300"})
        assert list(PODS.indexers["node"](pod)) == ["n1"]


def test_its_own_status_changes_no_fact() -> None:
    unready = copy.deepcopy(POD)
    unready["status"]["conditions"][1]["status"] = "False"
    unready["metadata"]["resourceVersion"] = "8"
    assert read_pod(unready) == read_pod(POD)
