"""An admission step that comes after the webhook of bindings and sets the same field: a MutatingAdmissionPolicy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kube.json_type import Json
from tests.cloud.rest import STRATEGIC_PATCH
from tests.controllers.support.binding_scene import BindingScene, image_of

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
SET_BACK = """[JSONPatch{op: "replace", path: "/spec/template/spec/containers/0/image", value: "app:1"}]"""


@contextmanager
def webhook_restoring_the_image(bindings: BindingScene, name: str) -> Iterator[None]:
    """The image of a Deployment is app:1 in the context, whatever anybody writes."""
    rule = {
        "apiGroups": ["apps"],
        "apiVersions": ["v1"],
        "resources": ["deployments"],
        "operations": ["UPDATE"],
    }
    spec: Json = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConstraints": {"resourceRules": [{**rule, "resourceNames": [name]}]},
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": SET_BACK}}],
    }
    admin, meta = bindings.scene.admin, {"name": name}
    admin.post(f"{ADMISSION}/mutatingadmissionpolicies", {"metadata": meta, "spec": spec})
    admin.post(
        f"{ADMISSION}/mutatingadmissionpolicybindings", {"metadata": meta, "spec": {"policyName": name}}
    )
    bindings.scene.until(lambda: _dry_run(bindings, name) == "app:1")
    yield
    for kind in ("mutatingadmissionpolicybindings", "mutatingadmissionpolicies"):
        admin.delete(f"{ADMISSION}/{kind}/{name}")


def _dry_run(bindings: BindingScene, name: str) -> str:
    """The image that the Deployment would have after a write of another one."""
    answer = bindings.scene.admin.request(
        "PATCH",
        f"{bindings.deployments}/{name}",
        query={"dryRun": "All"},
        body={"spec": {"template": {"spec": {"containers": [{"name": "app", "image": "probe"}]}}}},
        headers={"Content-Type": STRATEGIC_PATCH},
    )
    return image_of(answer.json())
