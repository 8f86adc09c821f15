"""Validation of YurtAppConfigBindings by the API server: the schema's rules hold without a running manager."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube.json_type import Json
from tests.cloud.rest import RestError
from tests.controllers.support.binding_scene import BindingScene
from tests.controllers.support.workloads import claim, config_map, env, image, patch, secret

pytestmark = [pytest.mark.real]

DOCUMENT = Path(__file__).parents[3] / "docs" / "bindings.md"


@pytest.mark.parametrize(
    "items",
    [
        [image("app:2")],
        [env(A="x", B="")],
        [config_map("x")],
        [config_map("x", key="configMapSource")],
        [claim("x")],
        [secret("x")],
        [{"minReadySeconds": 0}],
        [{"podLabels": {"example.org/site": "a-{{nodepool}}", "empty": ""}}],
        [{"podAnnotations": {"example.org/Site": "of {{nodepool}}"}}],
        [{"replicas": 0}],
        [{"upgradeStrategy": "OnDelete"}],
        [{"replicas": 1}, {"upgradeStrategy": "Recreate"}, image("a"), image("b")],
    ],
)
def test_every_kind_of_item_is_stored_unmodified(bindings: BindingScene, items: list[Json]) -> None:
    name = bindings.bind("web", items=items)
    assert bindings.get(name)["spec"]["items"] == items


SELECTOR: Json = {
    "matchLabels": {"region": "east", "empty": ""},
    "matchExpressions": [
        {"key": "edge.example/size", "operator": "In", "values": ["large", "small"]},
        {"key": "edge.example/old", "operator": "DoesNotExist"},
    ],
}


@pytest.mark.parametrize(
    "value", ["text", 0, False, {}, [], {"a": [1, {"b": None, "c": "x"}]}, ["a", 1, {"k": "v"}]]
)
def test_patches_are_stored_unmodified(bindings: BindingScene, value: object) -> None:
    patches = [
        patch("add", "/volumes/-", value),
        patch("replace", "/containers/0/image", value),
        patch("remove", "/nodeSelector/kubernetes.io~1os"),
    ]
    name = bindings.bind("web", patches=patches)
    assert bindings.get(name)["spec"]["patches"] == [each["patch"] for each in patches]


@pytest.mark.parametrize("selector", [{}, {"matchLabels": {"a": "b"}}, SELECTOR])
def test_a_selector_is_stored_and_may_replace_pools(bindings: BindingScene, selector: Json) -> None:
    name = bindings.bind("web", items=[{"replicas": 1}], pools=None, selector=selector)
    subject = bindings.get(name)["spec"]["subject"]
    assert subject["nodepoolSelector"] == selector
    assert "pools" not in subject
    bindings.change(name, subject={"nodepoolSelector": None, "pools": ["a"]})
    assert bindings.get(name)["spec"]["subject"]["pools"] == ["a"]


def expression(operator: str, **values: object) -> Json:
    return {"selector": {"matchExpressions": [{"key": "a", "operator": operator, **values}]}}


BOTH_NAMES = config_map("x")
BOTH_NAMES["configMap"]["configMapSource"] = "config"
NO_NAME = copy.deepcopy(BOTH_NAMES)
del NO_NAME["configMap"]["configMapSource"], NO_NAME["configMap"]["configMapClaim"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"items": []}, "should have at least 1 items"),
        ({"items": [{}]}, "should have at least 1 properties"),
        ({"items": [{"replicas": 1, "upgradeStrategy": "Recreate"}]}, "Too many: 2"),
        ({"items": [{"replicas": 1}, {"replicas": 1}]}, "replicas may be given once"),
        (
            {"items": [{"upgradeStrategy": "Recreate"}, {"upgradeStrategy": "OnDelete"}]},
            "upgradeStrategy may be given once",
        ),
        ({"items": [{"minReadySeconds": 1}, {"minReadySeconds": 1}]}, "minReadySeconds may be given once"),
        ({"items": [{"podLabels": {}}]}, "should have at least 1 properties"),
        ({"items": [{"podLabels": {"a": "not valid"}}]}, "should match"),
        ({"items": [{"replicas": -1}]}, "greater than or equal to 0"),
        ({"items": [{"upgradeStrategy": "Sometimes"}]}, "Unsupported value"),
        ({"items": [BOTH_NAMES]}, "name the volume by configMapClaim"),
        ({"items": [NO_NAME]}, "name the volume by configMapClaim"),
        ({"items": [{"image": {"containerName": "app"}}]}, "Required value"),
        ({"items": [env()]}, "should have at least 1 properties"),
        ({"pools": []}, "should have at least 1 items"),
        ({"pools": ["a", "a"]}, "Duplicate value"),
        ({"pools": ["A"]}, "should match"),
        ({"pools": ["**"]}, "should match"),
        ({"pools": None}, "give pools or nodepoolSelector"),
        (expression("In"), "In and NotIn have values"),
        (expression("Exists", values=["x"]), "In and NotIn have values"),
        (expression("In", values=[]), "should have at least 1 items"),
        (expression("Like", values=["x"]), "Unsupported value"),
        ({"selector": {"matchLabels": {"a": "not valid"}}}, "should match"),
        ({"patches": [{"patch": {"operation": "add", "path": "/metadata/labels/a", "value": "b"}}]}, "below"),
        ({"patches": [{"patch": {"operation": "add", "path": "/spec/template/spec", "value": {}}}]}, "below"),
        ({"patches": [patch("add", "/volumes/~2", 1)]}, "should match"),
        ({"patches": [patch("add", "//volumes", 1)]}, "should match"),
        ({"patches": [patch("move", "/volumes/0", 1)]}, "Unsupported value"),
        ({"patches": [patch("add", "/volumes/-")]}, "exactly one|value"),
        ({"patches": [patch("remove", "/volumes/0", 1)]}, "exactly one|value"),
        ({"kind": "Job"}, "Unsupported value"),
        ({"kind": "Deployment", "version": "apps/v1beta1"}, "do not belong together"),
        ({"kind": "YurtAppSet", "version": "apps/v1"}, "do not belong together"),
    ],
)
def test_an_invalid_binding_is_refused(bindings: BindingScene, spec: dict[str, Any], message: str) -> None:
    with pytest.raises(RestError, match=message) as refused:
        bindings.bind("web", **{"items": [{"replicas": 1}], **spec})
    assert refused.value.answer.status == 422


@pytest.mark.parametrize("version", ["v1alpha1", "v1beta1", "v1beta2"])
@pytest.mark.parametrize("kind", ["YurtAppSet", "YurtAppDaemon"])
def test_a_subject_of_openyurt_may_have_any_version(bindings: BindingScene, kind: str, version: str) -> None:
    bindings.bind("web", kind=kind, version=f"apps.openyurt.io/{version}", items=[{"replicas": 1}])


@pytest.mark.parametrize(
    "change", [{"name": "other"}, {"kind": "YurtAppDaemon"}, {"apiVersion": "apps.openyurt.io/v1alpha1"}]
)
def test_the_subject_is_immutable_and_its_pools_may_change(bindings: BindingScene, change: Json) -> None:
    name = bindings.bind(
        "web", kind="YurtAppSet", version="apps.openyurt.io/v1beta1", items=[{"replicas": 1}]
    )
    with pytest.raises(RestError, match="the subject cannot be changed"):
        bindings.change(name, subject=change)
    bindings.change(name, subject={"pools": ["*", "-beijing"]})
    assert bindings.get(name)["spec"]["subject"]["pools"] == ["*", "-beijing"]


def test_kubectl_prints_columns_and_accepts_the_short_name(bindings: BindingScene) -> None:
    name = bindings.bind("web", items=[{"replicas": 1}])
    bindings.scene.admin.patch(
        f"{bindings.path}/{name}/status", {"status": {"workloads": 3, "injectedWorkloads": 2}}
    )
    namespace = bindings.scene.namespace
    shown = bindings.scene.cloud.kubectl("get", "yacb", "-n", namespace, name).stdout.splitlines()
    assert shown[0].split() == ["NAME", "KIND", "SUBJECT", "WORKLOADS", "INJECTED", "AGE"]
    assert shown[1].split()[:5] == [name, "Deployment", "web", "3", "2"]
    assert name in bindings.scene.cloud.kubectl("get", "yurt", "-n", namespace).stdout


@pytest.mark.parametrize(("role", "may"), [("view", "get"), ("edit", "get create update delete")])
def test_the_roles_view_and_edit_cover_bindings(bindings: BindingScene, role: str, may: str) -> None:
    scene = bindings.scene
    user = scene.name("user")
    scene.admin.post(
        f"/apis/rbac.authorization.k8s.io/v1/namespaces/{scene.namespace}/rolebindings",
        {
            "metadata": {"name": user},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        },
    )

    def allowed() -> str:
        asked = "apps.openyurt.io", "yurtappconfigbindings", scene.namespace
        return " ".join(
            verb for verb in ("get", "create", "update", "delete") if scene.may(user, verb, *asked)
        )

    # The controller of aggregated roles and the authorizer apply the change shortly after.
    scene.until(lambda: allowed() == may)


def test_the_examples_of_the_document_are_accepted(bindings: BindingScene) -> None:
    def documented() -> list[Json]:
        """Return the bindings in the document, and one for each example of an item in its table."""
        text = DOCUMENT.read_text()
        valid = [
            each
            for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
            if (each := yaml.safe_load(block)).get("kind") == "YurtAppConfigBinding"
        ]
        rows = re.findall(r"^\| `(\w+)` \|.*\| `(.*)` \|$", text, re.MULTILINE)
        subject = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "pools": ["*"]}
        return [
            *valid,
            *(
                {**valid[0], "spec": {"subject": subject, "items": [{item: yaml.safe_load(example)}]}}
                for item, example in rows
            ),
        ]

    examples = documented()
    assert len(examples) == 2 + 10, "two whole ones, and one of each kind of item"
    for each in examples:
        name = bindings.scene.name("example")
        body = {**each, "metadata": {"name": name}}
        assert bindings.scene.admin.post(bindings.path, body)["spec"] == each["spec"]
