"""Bindings are injected into their workloads and removed again, on the real API server with the Deployment
controller."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from controllers.bindings.config_binding_controller import ATTEMPTS
from kube.json_type import Json
from tests.cloud.rest import STRATEGIC_PATCH
from tests.controllers.support.binding_scene import POOL_NAME, RECORD, BindingScene, image_of
from tests.controllers.support.workloads import (
    claim,
    config_map,
    daemon_set,
    env,
    image,
    patch,
    secret,
    stateful_set,
)

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
SET_BACK = """[JSONPatch{op: "replace", path: "/spec/template/spec/containers/0/image", value: "app:1"}]"""


@contextmanager
def webhook_restoring_the_image(bindings: BindingScene, name: str) -> Iterator[None]:
    """Install a webhook that sets the image of a Deployment in the context to app:1 at each write."""
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
    """Return the image of the Deployment after a dry-run write of another one."""
    answer = bindings.scene.admin.request(
        "PATCH",
        f"{bindings.deployments}/{name}",
        query={"dryRun": "All"},
        body={"spec": {"template": {"spec": {"containers": [{"name": "app", "image": "probe"}]}}}},
        headers={"Content-Type": STRATEGIC_PATCH},
    )
    return image_of(answer.json())


pytestmark = [pytest.mark.real, pytest.mark.usefixtures("manager")]

EVERYTHING = [
    image("app:2"),
    env(A="x", NEW="{{nodepool}}", EMPTY=""),
    config_map("config-{{nodepool}}"),
    claim("claim-{{nodepool}}"),
    {"replicas": 0},
    {"upgradeStrategy": "Recreate"},
    secret("keys-{{nodepool}}"),
    {"minReadySeconds": 7},
    {"podLabels": {"example.org/site": "{{nodepool}}"}},
    {"podAnnotations": {"example.org/Site": "of {{nodepool}}"}},
]


def test_a_binding_is_injected_and_the_former_fields_restored(bindings: BindingScene) -> None:
    name = bindings.deployment()
    before = bindings.spec(name)
    bindings.scene.until(lambda: bindings.rollouts(name) == 1)
    binding = bindings.bind(name, items=EVERYTHING)
    after = bindings.sees(name, lambda obj: image_of(obj) == "app:2")
    container, volumes = (after["spec"]["template"]["spec"][key] for key in ("containers", "volumes"))
    assert [each.get("value") for each in container[0]["env"]] == ["x", None, None, "hangzhou"]
    assert volumes[0]["configMap"]["name"] == "config-hangzhou"
    assert volumes[1]["persistentVolumeClaim"]["claimName"] == "claim-hangzhou"
    assert volumes[2]["secret"]["secretName"] == "keys-hangzhou"
    assert after["spec"]["replicas"] == 0
    assert after["spec"]["minReadySeconds"] == 7
    pods = after["spec"]["template"]["metadata"]
    assert pods["labels"] == {"app": "web", "example.org/site": "hangzhou"}
    assert pods["annotations"] == {"example.org/Site": "of hangzhou"}
    assert after["spec"]["strategy"] == {"type": "Recreate"}
    assert bindings.sees_condition(binding, "Injected", "True", "AllInjected") == ""
    status = bindings.get(binding)["status"]
    assert (status["workloads"], status["injectedWorkloads"]) == (1, 1)
    bindings.scene.until(lambda: bindings.rollouts(name) == 2)

    bindings.unbind(binding)
    given_back = bindings.sees(name, lambda obj: image_of(obj) == "app:1")
    assert given_back["spec"] == before
    assert RECORD not in given_back["metadata"].get("annotations", {})
    # The old pod template returns: the first ReplicaSet is used again, without a third one.
    bindings.scene.until(lambda: "GivenBack" in bindings.scene.events(name, bindings.scene.namespace))
    assert bindings.rollouts(name) == 2


@pytest.mark.parametrize(
    ("template", "strategy", "stored"),
    [
        (stateful_set(), "OnDelete", {"type": "OnDelete"}),
        (
            daemon_set(),
            "RollingUpdate",
            {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
        ),
    ],
    ids=["StatefulSet", "DaemonSet"],
)
def test_each_kind_of_workload_is_injected_and_restored(
    bindings: BindingScene, template: Json, strategy: str, stored: Json
) -> None:
    name, path = bindings.scene.name("db"), bindings.collection(template)
    before = bindings.scene.admin.post(path, bindings.workload(template, name, "hangzhou", ""))["spec"]
    given = [image("app:2"), {"upgradeStrategy": strategy}, {"minReadySeconds": 7}, {"podLabels": {"a": "b"}}]
    binding = bindings.bind(name, kind=template["kind"], items=given)
    after = bindings.scene.sees(path, name, lambda obj: image_of(obj) == "app:2")["spec"]
    assert (after["updateStrategy"], after["minReadySeconds"]) == (stored, 7)
    assert after["template"]["metadata"]["labels"] == {"app": "web", "a": "b"}
    bindings.sees_condition(binding, "Injected", "True", "AllInjected")
    bindings.unbind(binding)
    assert bindings.scene.sees(path, name, lambda obj: image_of(obj) == "app:1")["spec"] == before


def test_patches_apply_after_items_and_are_restored(bindings: BindingScene) -> None:
    name = bindings.deployment()
    before = bindings.spec(name)
    sidecar: Json = {
        "name": "agent",
        "image": "agent:1",
        "ports": [{"containerPort": 80}],
        "resources": {"limits": {"cpu": "0.5", "memory": 1073741824}},
        "volumeMounts": [{"name": "certificates", "mountPath": "/certificates"}],
    }
    patches = [
        patch("add", "/volumes/-", {"name": "certificates", "hostPath": {"path": "/etc/{{nodepool}}"}}),
        patch("add", "/containers/-", sidecar),
        patch("replace", "/containers/0/image", "{{nodepool-name}}/app:3"),
        patch("add", "/containers/1/command", ["sleep"]),
        patch("remove", "/initContainers/0"),
        patch("add", "/tolerations", [{"key": "edge", "operator": "Exists"}]),
        patch("add", "/securityContext/runAsUser", 1000),
        patch("add", "/hostNetwork", False),
        patch("add", "/nodeSelector", {}),
    ]
    binding = bindings.bind(name, items=[image("app:2"), env(A="x")], patches=patches)
    after = bindings.sees(name, lambda obj: image_of(obj) == "hangzhou/app:3")
    template = after["spec"]["template"]["spec"]
    assert [each["name"] for each in template["containers"]] == ["app", "side", "agent"]
    assert template["containers"][1]["command"] == ["sleep"]
    assert template["volumes"][3]["hostPath"]["path"] == "/etc/hangzhou"
    assert template["securityContext"]["runAsUser"] == 1000
    assert "initContainers" not in template
    bindings.sees_condition(binding, "Injected", "True", "AllInjected")

    # A writer that read the injected workload changes one container: nothing is injected twice.
    read = bindings.spec(name)
    read["template"]["spec"]["containers"][1]["image"] = "side:9"
    bindings.scene.admin.patch(f"{bindings.deployments}/{name}", {"spec": read})
    bindings.sees_condition(binding, "Injected", "True", "AllInjected")
    generation = bindings.sees(name, lambda obj: True)["metadata"]["generation"]
    bindings.change(binding, items=[image("app:4"), env(A="y")])
    changed = bindings.sees(name, lambda obj: "app:4" in obj["metadata"]["annotations"][RECORD])
    names = [each["name"] for each in changed["spec"]["template"]["spec"]["containers"]]
    assert names == ["app", "side", "agent"]
    bindings.sees_condition(binding, "Injected", "True", "AllInjected")
    assert bindings.sees(name, lambda obj: True)["metadata"]["generation"] == generation + 1

    bindings.unbind(binding)
    given_back = bindings.sees(name, lambda obj: RECORD not in obj["metadata"].get("annotations", {}))
    before["template"]["spec"]["containers"][1]["image"] = "side:9"
    assert given_back["spec"] == before


def test_a_binding_may_be_created_before_its_subject(bindings: BindingScene) -> None:
    binding = bindings.bind("web", items=[image("app:2")])
    assert bindings.sees_condition(binding, "SubjectFound", "False", "NoWorkload")
    bindings.deployment(name="web")
    bindings.sees("web", lambda obj: image_of(obj) == "app:2")
    bindings.sees_condition(binding, "SubjectFound", "True", "WorkloadsFound")
    bindings.sees_condition(binding, "Injected", "True", "AllInjected")
    bindings.scene.admin.delete(f"{bindings.deployments}/web")
    bindings.sees_condition(binding, "SubjectFound", "False", "NoWorkload")


def test_adding_or_removing_a_pool_injects_or_restores_its_workloads(bindings: BindingScene) -> None:
    names = {pool: bindings.deployment(pool, owner="shop") for pool in ("hangzhou", "beijing", "shanghai")}
    stranger = bindings.deployment("hangzhou", owner="other")
    binding = bindings.bind(
        "shop",
        kind="YurtAppSet",
        version="apps.openyurt.io/v1beta1",
        pools=["*", "-shanghai"],
        items=[image("r/{{nodepool-name}}:2")],
    )
    for pool in ("hangzhou", "beijing"):
        bindings.sees(names[pool], lambda obj, pool=pool: image_of(obj) == f"r/{pool}:2")  # type: ignore[misc]  # the value of now
    bindings.sees_condition(binding, "Injected", "True", "AllInjected")
    assert bindings.get(binding)["status"]["workloads"] == 2
    bindings.change(binding, subject={"pools": ["hangzhou"]})
    bindings.sees(names["beijing"], lambda obj: image_of(obj) == "app:1")
    assert image_of(bindings.sees(names["hangzhou"], lambda obj: True)) == "r/hangzhou:2"
    for untouched in (names["shanghai"], stranger):
        obj = bindings.scene.admin.get(f"{bindings.deployments}/{untouched}")
        assert image_of(obj) == "app:1"
        assert obj["metadata"]["generation"] == 1


def test_a_workload_that_loses_its_label_is_restored(bindings: BindingScene) -> None:
    name = bindings.deployment()
    before = bindings.spec(name)
    bindings.bind(name, items=[image("app:2")])
    bindings.sees(name, lambda obj: image_of(obj) == "app:2")
    bindings.scene.admin.patch(f"{bindings.deployments}/{name}", {"metadata": {"labels": {POOL_NAME: None}}})
    bindings.sees(name, lambda obj: obj["spec"] == before)


def test_a_workload_that_changes_its_owner_is_restored(bindings: BindingScene) -> None:
    name = bindings.deployment(owner="shop")
    before = bindings.spec(name)
    bindings.bind("shop", kind="YurtAppSet", version="apps.openyurt.io/v1beta1", items=[image("app:2")])
    bindings.sees(name, lambda obj: image_of(obj) == "app:2")
    path = f"{bindings.deployments}/{name}"
    [owner] = bindings.scene.admin.get(path)["metadata"]["ownerReferences"]
    other = [{**owner, "name": "other"}]
    bindings.scene.admin.patch(path, {"metadata": {"ownerReferences": other}})
    bindings.sees(name, lambda obj: obj["spec"] == before)


@pytest.mark.parametrize(
    ("items", "patches"),
    [
        ([env(**{"not=valid": "x"})], []),
        ([], [patch("add", "/containers/0/ports", [{"containerPort": 99999}])]),
        ([], [patch("replace", "/containers/0/image", {"of": "another type"})]),
    ],
)
def test_an_injection_that_the_api_server_refuses_is_reported_and_not_retried(
    bindings: BindingScene, items: list[Json], patches: list[Json]
) -> None:
    name = bindings.deployment()
    binding = bindings.bind(name, items=items, patches=patches)
    message = bindings.sees_condition(binding, "Injected", "False", "Refused")
    assert name in message
    assert bindings.scene.events(binding, bindings.scene.namespace) == ["Refused"]
    mark = bindings.scene.cloud.audit_mark()
    # A valid change is injected at once.
    bindings.change(binding, items=[env(VALID="x")], patches=None)
    bindings.sees_condition(binding, "Injected", "True", "AllInjected")
    writes = [
        each for each in bindings.scene.writes(mark) if each.uri.startswith(f"{bindings.deployments}/{name}")
    ]
    assert len(writes) == 1


def test_injection_stops_after_three_writes_against_another_client(bindings: BindingScene) -> None:
    name = bindings.deployment()
    binding = bindings.bind(name, items=[image("app:2")])
    path = f"{bindings.deployments}/{name}"
    for _ in range(3):
        bindings.sees(name, lambda obj: image_of(obj) == "app:2")
        bindings.edit(name, {"template": {"spec": {"containers": [{"name": "app", "image": "app:1"}]}}})
    message = bindings.sees_condition(binding, "Conflict", "True", "NotHeld")
    assert message == f"another client reverts the items in Deployment {name}"
    assert image_of(bindings.scene.admin.get(path)) == "app:1"


@pytest.fixture
def other_webhook(bindings: BindingScene) -> Iterator[str]:
    """Install an admission step that sets the image of a Deployment to app:1 at each write."""
    name = bindings.deployment()
    with webhook_restoring_the_image(bindings, name):
        yield name


@pytest.mark.since(36, "mutating admission policies, which stand for a webhook")
def test_a_conflicting_webhook_is_reported_and_writes_end_after_some_attempts(
    bindings: BindingScene, other_webhook: str
) -> None:
    mark = bindings.scene.cloud.audit_mark()
    binding = bindings.bind(other_webhook, items=[image("app:2")])
    message = bindings.sees_condition(binding, "Conflict", "True", "NotHeld")
    assert message == f"another client reverts the items in Deployment {other_webhook}"
    bindings.sees_condition(binding, "Injected", "False", "Pending")
    path = f"{bindings.deployments}/{other_webhook}"
    assert sum(each.uri.startswith(path) for each in bindings.scene.writes(mark)) == ATTEMPTS


def test_a_steady_binding_is_not_written(bindings: BindingScene) -> None:
    name = bindings.deployment()
    binding = bindings.bind(name, items=EVERYTHING)
    bindings.sees_condition(binding, "Injected", "True", "AllInjected")
    mark = bindings.scene.cloud.audit_mark()
    bindings.scene.admin.patch(f"{bindings.deployments}/{name}", {"metadata": {"annotations": {"a": "b"}}})
    # A second binding is observed later than that change.
    other = bindings.bind("none", items=[{"replicas": 1}])
    bindings.sees_condition(other, "SubjectFound", "False", "NoWorkload")
    uris = [each.uri for each in bindings.scene.writes(mark)]
    assert [uri for uri in uris if name in uri or f"{binding}/" in uri] == []
