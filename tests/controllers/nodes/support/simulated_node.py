"""A node as the cloud sees it, which finishes the Jobs of the controller `nodes` as a test sets, and renews its
Lease."""

from __future__ import annotations

import json
import threading
from collections.abc import Collection
from datetime import UTC, datetime

from kube.json_type import Json
from tests.cloud.rest import RestClient

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
PODS = "/api/v1/namespaces/kube-system/pods"
ROLLED_BACK = "edgehub upgrade: the hub has ended; the previous hub runs again"
NO_HUB = "failed   kubeconfig  /etc/kubernetes/kubelet.conf has an exec plugin, so it is no node's"


class SimulatedNode:
    """A simulated node; threads may share it."""

    def __init__(self, client: RestClient, node: str, duration: int = 3600) -> None:
        """`duration` is the Lease's, in seconds."""
        self._client, self._node, self._duration = client, node, duration
        self._version = self._rollback = ""
        self._lock = threading.Lock()

    def run(
        self, pod: Json, *, fails: bool = False, bad: Collection[str] = (), is_silent: bool = False
    ) -> str:
        """Run a Job's pod. Return its action.

        `fails`: its doctor reports a fault; `bad`: versions whose hub fails, so that the previous one is restored;
        `is_silent`: its hub never reports that it is healthy.
        """
        arguments = pod["spec"]["containers"][0]["args"]
        action = str(arguments[0])
        version = (
            "" if action == "uninstall" else arguments[arguments.index("--static-pod") + 1].split(":")[1]
        )
        ended: Json = {"status": {"phase": "Succeeded"}}
        if fails:
            ended = failed(NO_HUB)
        elif version in bad:
            self.say(self._version, rollback=f"edgehub:{version}: the hub has ended")
            ended = failed(ROLLED_BACK)
        elif not is_silent:
            self.say(version)
        self._client.patch(f"{PODS}/{pod['metadata']['name']}/status", ended)
        return action

    def refuse_image(self, pod: Json) -> None:
        """Report like kubelet that the image of a pod cannot be pulled, until the pod is deleted."""
        path = f"{PODS}/{pod['metadata']['name']}"
        if "deletionTimestamp" in pod["metadata"]:
            self._client.request("DELETE", path, body={"gracePeriodSeconds": 0})
            return
        waiting = {"reason": "ErrImagePull", "message": f"{image_of(pod)}: not found"}
        status = {"containerStatuses": [container_status({"waiting": waiting})]}
        self._client.patch(f"{path}/status", {"status": status})

    def say(self, version: str, rollback: str = "") -> None:
        """Report a hub of this version from now on; "" for none."""
        self._version, self._rollback = version, rollback
        self.renew()

    def renew(self) -> None:
        """Renew the Lease like a node's hub, with its status, or like kubelet without a hub."""
        with self._lock:
            status = {"version": self._version, **({"rollback": self._rollback} if self._rollback else {})}
            notes = {"edgehub.io/hub-status": json.dumps(status)} if self._version else {}
            spec: Json = {"renewTime": now(micro=True), "leaseDurationSeconds": self._duration}
            lease: Json = {"metadata": {"name": self._node, "annotations": notes}, "spec": spec}
            if self._client.request("POST", LEASES, body=lease).status == 409:
                lease["metadata"] = {"annotations": notes or None}
                self._client.patch(f"{LEASES}/{self._node}", lease)


def failed(message: str) -> Json:
    """Return the status of a pod whose program failed with this termination message."""
    ended = {"terminated": {"exitCode": 1, "message": message}}
    return {"status": {"phase": "Failed", "containerStatuses": [container_status(ended)]}}


def container_status(state: Json) -> Json:
    """Return the status of a Job's container in this state."""
    return {
        "name": "edgehub",
        "state": state,
        "image": "",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
    }


def image_of(pod: Json) -> str:
    """Return the image of a Job's pod."""
    return str(pod["spec"]["containers"][0]["image"])


def now(*, micro: bool = False) -> str:
    """Return the current time in the format of a status or a Lease."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")
