"""What the API server makes of YurtAppConfigBindings: the schema's rules hold while no manager runs."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kube.json_type import Json
from tests.cloud.rest import RestError
from tests.controllers.support.binding_scene import BindingScene
from tests.controllers.support.workloads import claim, config_map, env, image

pytestmark = [pytest.mark.real]


@pytest.mark.parametrize(
    "items",
    [
        [image("app:2")],
        [env(A="x", B="")],
        [config_map("x")],
        [config_map("x", key="configMapSource")],
        [claim("x")],
        [{"replicas": 0}],
        [{"upgradeStrategy": "OnDelete"}],
        [{"replicas": 1}, {"upgradeStrategy": "Recreate"}, image("a"), image("b")],
    ],
)
def test_every_kind_of_item_is_kept_as_it_is(bindings: BindingScene, items: list[Json]) -> None:
    name = bindings.bind("web", items=items)
    assert bindings.get(name)["spec"]["items"] == items


BOTH_NAMES = config_map("x")
BOTH_NAMES["configMap"]["configMapSource"] = "config"
NO_NAME = copy.deepcopy(BOTH_NAMES)
del NO_NAME["configMap"]["configMapSource"], NO_NAME["configMap"]["configMapClaim"]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"items": []}, "should have at least 1 items"),
        ({"items": [{}]}, "should have at least 1 properties"),
        ({"items": [{"replicas": 1, "upgradeStrategy": "Recreate"}]}, "Too many: 2"),
        ({"items": [{"replicas": 1}, {"replicas": 1}]}, "replicas may be given once"),
        (
            {"items": [{"upgradeStrategy": "Recreate"}, {"upgradeStrategy": "OnDelete"}]},
            "upgradeStrategy may be given once",
        ),
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
        ({"kind": "DaemonSet"}, "Unsupported value"),
        ({"kind": "Deployment", "version": "apps/v1beta1"}, "do not belong together"),
        ({"kind": "YurtAppSet", "version": "apps/v1"}, "do not belong together"),
    ],
)
def test_what_is_refused(bindings: BindingScene, spec: dict[str, Any], words: str) -> None:
    with pytest.raises(RestError, match=words) as refused:
        bindings.bind("web", **{"items": [{"replicas": 1}], **spec})
    assert refused.value.answer.status == 422


@pytest.mark.parametrize("version", ["v1alpha1", "v1beta1", "v1beta2"])
@pytest.mark.parametrize("kind", ["YurtAppSet", "YurtAppDaemon"])
def test_a_subject_of_openyurt_has_any_version(bindings: BindingScene, kind: str, version: str) -> None:
    bindings.bind("web", kind=kind, version=f"apps.openyurt.io/{version}", items=[{"replicas": 1}])


def test_the_subject_stays_and_its_pools_may_change(bindings: BindingScene) -> None:
    name = bindings.bind("web", items=[{"replicas": 1}])
    with pytest.raises(RestError, match="the subject cannot be changed"):
        bindings.change(name, subject={"name": "other"})
    bindings.change(name, subject={"pools": ["*", "-beijing"]})
    assert bindings.get(name)["spec"]["subject"]["pools"] == ["*", "-beijing"]


def test_columns_and_short_name(bindings: BindingScene) -> None:
    name = bindings.bind("web", items=[{"replicas": 1}])
    bindings.scene.admin.patch(
        f"{bindings.path}/{name}/status", {"status": {"workloads": 3, "injectedWorkloads": 2}}
    )
    namespace = bindings.scene.namespace
    shown = bindings.scene.cloud.kubectl("get", "yacb", "-n", namespace, name).stdout.splitlines()
    assert shown[0].split() == ["NAME", "KIND", "SUBJECT", "WORKLOADS", "INJECTED", "AGE"]
    assert shown[1].split()[:5] == [name, "Deployment", "web", "3", "2"]
