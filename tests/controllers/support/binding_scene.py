"""Steps of binding tests on the cluster, and awaited conditions: bindings, workloads, rollouts."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

from kube.json_type import Json
from tests.cloud.rest import STRATEGIC_PATCH
from tests.controllers.support.scene import Scene, condition
from tests.controllers.support.workloads import DEPLOYMENT
from tests.support.objects import obj

POOL_NAME = "apps.openyurt.io/pool-name"
RECORD = "apps.openyurt.io/config-bindings"


class BindingScene:
    """A scene with the paths and verbs of bindings."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.path = f"/apis/apps.openyurt.io/v1alpha1/namespaces/{scene.namespace}/yurtappconfigbindings"
        self.deployments = f"/apis/apps/v1/namespaces/{scene.namespace}/deployments"
        self.replica_sets = f"/apis/apps/v1/namespaces/{scene.namespace}/replicasets"
        self.autoscalers = f"/apis/autoscaling/v2/namespaces/{scene.namespace}/horizontalpodautoscalers"

    def bind(
        self,
        subject: str,
        *,
        items: Sequence[Json] = (),
        patches: Sequence[Json] = (),
        pools: Sequence[str] | None = ("*",),
        selector: Json | None = None,
        kind: str = "Deployment",
        version: str = "apps/v1",
        name: str = "",
    ) -> str:
        """Create a binding; return its name. `patches` are as `workloads.patch` returns them."""
        name = name or self.scene.name("binding")
        spec_of_subject: Json = {"apiVersion": version, "kind": kind, "name": subject}
        # A list that is None is left out.
        spec_of_subject |= {"pools": list(pools)} if pools is not None else {}
        spec_of_subject |= {"nodepoolSelector": selector} if selector is not None else {}
        spec: Json = {"subject": spec_of_subject}
        spec |= {"items": list(items)} if items or not patches else {}
        spec |= {"patches": [each["patch"] for each in patches]} if patches else {}
        self.scene.admin.post(
            self.path,
            obj("YurtAppConfigBinding", name, apiVersion="apps.openyurt.io/v1alpha1", spec=spec),
        )
        return name

    def get(self, name: str) -> Json:
        return self.scene.admin.get(f"{self.path}/{name}")

    def change(self, name: str, **spec: object) -> None:
        self.scene.admin.patch(f"{self.path}/{name}", {"spec": spec})

    def unbind(self, name: str) -> None:
        self.scene.admin.delete(f"{self.path}/{name}")

    def deployment(self, pool: str = "hangzhou", *, owner: str = "", name: str = "") -> str:
        """Create a Deployment of a pool as its owner, a YurtAppSet that does not exist, would."""
        name = name or self.scene.name("web")
        self.scene.admin.post(self.deployments, self.workload(DEPLOYMENT, name, pool, owner))
        return name

    def collection(self, template: Json) -> str:
        """Return the path of workloads of a template's kind."""
        return f"/apis/apps/v1/namespaces/{self.scene.namespace}/{template['kind'].lower()}s"

    def spec(self, name: str) -> Json:
        found: Json = self.scene.admin.get(f"{self.deployments}/{name}")["spec"]
        return found

    def edit(self, name: str, spec: Json) -> None:
        """Send a strategic merge patch of a Deployment's spec, like kubectl."""
        self.scene.admin.patch(f"{self.deployments}/{name}", {"spec": spec}, STRATEGIC_PATCH)

    def sees(self, name: str, holds: Callable[[Json], bool]) -> Json:
        """Return a Deployment as soon as a condition on its first container and spec holds."""
        return self.scene.sees(self.deployments, name, holds)

    def sees_condition(self, name: str, kind: str, status: str, reason: str) -> str:
        """Wait until a binding's condition has this status and reason for its current generation; return the
        message."""

        def holds(obj: Json) -> bool:
            found = condition(obj, kind)
            current = found["observedGeneration"] == obj["metadata"]["generation"]
            return current and (found["status"], found["reason"]) == (status, reason)

        return str(condition(self.scene.sees(self.path, name, holds), kind)["message"])

    def rollouts(self, name: str) -> int:
        """Return the number of pod templates that a Deployment has had, by its ReplicaSets."""
        sets = self.scene.admin.get(self.replica_sets)["items"]
        return sum(each["metadata"]["ownerReferences"][0]["name"] == name for each in sets)

    def workload(self, template: Json, name: str, pool: str, owner: str) -> Json:
        workload = copy.deepcopy(template)
        workload["metadata"] = {"name": name, "labels": {POOL_NAME: pool} if pool else {}}
        if owner:
            reference = {
                "apiVersion": "apps.openyurt.io/v1beta1",
                "kind": "YurtAppSet",
                "name": owner,
                "uid": "0b6f7f0e-0000-4000-8000-000000000001",
                "controller": True,
            }
            workload["metadata"]["ownerReferences"] = [reference]
        return workload


def image_of(deployment: Json) -> str:
    return str(deployment["spec"]["template"]["spec"]["containers"][0]["image"])
