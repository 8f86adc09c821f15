"""Bindings reach their workloads and leave them, on the real API server with the Deployment controller."""

from __future__ import annotations

import pytest

from kube.json_type import Json
from tests.controllers.support.binding_scene import POOL_NAME, RECORD, BindingScene, image_of
from tests.controllers.support.workloads import claim, config_map, env, image

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("manager")]

EVERYTHING = [
    image("app:2"),
    env(A="x", NEW="{{nodepool}}", EMPTY=""),
    config_map("config-{{nodepool}}"),
    claim("claim-{{nodepool}}"),
    {"replicas": 0},
    {"upgradeStrategy": "Recreate"},
]


def test_a_binding_reaches_its_workload_and_gives_back_what_was_there(bindings: BindingScene) -> None:
    name = bindings.deployment()
    before = bindings.spec(name)
    bindings.scene.until(lambda: bindings.rollouts(name) == 1)
    binding = bindings.bind(name, items=EVERYTHING)
    after = bindings.sees(name, lambda obj: image_of(obj) == "app:2")
    container, volumes = (after["spec"]["template"]["spec"][key] for key in ("containers", "volumes"))
    assert [each.get("value") for each in container[0]["env"]] == ["x", None, None, "hangzhou"]
    assert volumes[0]["configMap"]["name"] == "config-hangzhou"
    assert volumes[1]["persistentVolumeClaim"]["claimName"] == "claim-hangzhou"
    assert after["spec"]["replicas"] == 0
    assert after["spec"]["strategy"] == {"type": "Recreate"}
    assert bindings.sees_condition(binding, "Injected", "True", "AllInjected") == ""
    status = bindings.get(binding)["status"]
    assert (status["workloads"], status["injectedWorkloads"]) == (1, 1)
    bindings.scene.until(lambda: bindings.rollouts(name) == 2)

    bindings.unbind(binding)
    given_back = bindings.sees(name, lambda obj: image_of(obj) == "app:1")
    assert given_back["spec"] == before
    assert RECORD not in given_back["metadata"].get("annotations", {})
    # The old pod template comes back: no third ReplicaSet, but the first one again.
    bindings.scene.until(lambda: "GivenBack" in bindings.scene.events(name, bindings.scene.namespace))
    assert bindings.rollouts(name) == 2


def test_a_stateful_set_gets_its_strategy_and_gives_it_back(bindings: BindingScene) -> None:
    name = bindings.stateful_set()
    before = bindings.scene.admin.get(f"{bindings.stateful_sets}/{name}")["spec"]
    binding = bindings.bind(name, kind="StatefulSet", items=[{"upgradeStrategy": "OnDelete"}, image("db:2")])
    see = bindings.scene.sees
    see(bindings.stateful_sets, name, lambda obj: obj["spec"]["updateStrategy"] == {"type": "OnDelete"})
    bindings.unbind(binding)
    see(bindings.stateful_sets, name, lambda obj: obj["spec"] == before)


def test_a_binding_may_come_before_its_subject(bindings: BindingScene) -> None:
    binding = bindings.bind("web", items=[image("app:2")])
    assert bindings.sees_condition(binding, "SubjectFound", "False", "NoWorkload")
    bindings.deployment(name="web")
    bindings.sees("web", lambda obj: image_of(obj) == "app:2")
    bindings.sees_condition(binding, "SubjectFound", "True", "WorkloadsFound")
    bindings.sees_condition(binding, "Injected", "True", "AllInjected")
    bindings.scene.admin.delete(f"{bindings.deployments}/web")
    bindings.sees_condition(binding, "SubjectFound", "False", "NoWorkload")


def test_pools_are_chosen_and_given_up(bindings: BindingScene) -> None:
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


def test_a_changed_item_is_followed_and_a_dropped_one_given_back(bindings: BindingScene) -> None:
    name = bindings.deployment()
    binding = bindings.bind(name, items=[image("app:2"), env(A="x")])
    bindings.sees(name, lambda obj: image_of(obj) == "app:2")
    bindings.change(binding, items=[image("app:3")])
    changed = bindings.sees(name, lambda obj: image_of(obj) == "app:3")
    assert changed["spec"]["template"]["spec"]["containers"][0]["env"][0] == {"name": "A", "value": "a"}


def test_a_writers_own_change_is_the_new_base(bindings: BindingScene) -> None:
    name = bindings.deployment()
    binding = bindings.bind(name, items=[image("app:2")])
    bindings.sees(name, lambda obj: image_of(obj) == "app:2")
    containers = [{"name": "app", "image": "app:9"}]
    bindings.edit(name, {"template": {"spec": {"containers": containers}}})
    bindings.sees(
        name, lambda obj: image_of(obj) == "app:2" and "app:9" in obj["metadata"]["annotations"][RECORD]
    )
    bindings.unbind(binding)
    bindings.sees(name, lambda obj: image_of(obj) == "app:9")


def test_a_workload_that_loses_its_label_is_given_back(bindings: BindingScene) -> None:
    name = bindings.deployment()
    before = bindings.spec(name)
    bindings.bind(name, items=[image("app:2")])
    bindings.sees(name, lambda obj: image_of(obj) == "app:2")
    bindings.scene.admin.patch(f"{bindings.deployments}/{name}", {"metadata": {"labels": {POOL_NAME: None}}})
    bindings.sees(name, lambda obj: obj["spec"] == before)


def test_of_two_bindings_the_later_name_wins_and_the_other_is_told(bindings: BindingScene) -> None:
    name = bindings.deployment()
    loser = bindings.bind(name, items=[image("first"), env(A="kept")])
    winner = bindings.bind(name, items=[image("second")])
    won = bindings.sees(name, lambda obj: image_of(obj) == "second")
    assert won["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"] == "kept"
    message = bindings.sees_condition(loser, "Conflict", "True", "Overridden")
    assert message == f"Deployment {name}: image/app is set by {winner}"
    bindings.sees_condition(winner, "Conflict", "False", "NoConflict")
    bindings.unbind(winner)
    bindings.sees(name, lambda obj: image_of(obj) == "first")
    bindings.sees_condition(loser, "Conflict", "False", "NoConflict")


def test_an_autoscaler_keeps_the_replicas(bindings: BindingScene) -> None:
    name = bindings.deployment()
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    bindings.scene.admin.post(
        bindings.autoscalers,
        {"metadata": {"name": name}, "spec": {"scaleTargetRef": target, "maxReplicas": 9}},
    )
    binding = bindings.bind(name, items=[{"replicas": 5}, image("app:2")])
    message = bindings.sees_condition(binding, "Injected", "False", "Skipped")
    assert message == f"Deployment {name}: replicas: AutoscalerOwnsReplicas"
    bindings.sees(name, lambda obj: image_of(obj) == "app:2" and obj["spec"]["replicas"] == 2)
    bindings.scene.admin.delete(f"{bindings.autoscalers}/{name}")
    bindings.sees(name, lambda obj: obj["spec"]["replicas"] == 5)
    bindings.sees_condition(binding, "Injected", "True", "AllInjected")


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (image("x", "none"), "image/none: ContainerNotFound"),
        (config_map("x", container="side"), "configmap/config: VolumeNotMounted"),
        ({"upgradeStrategy": "OnDelete"}, "strategy: StrategyNotForKind"),
    ],
)
def test_what_has_no_place_is_told(bindings: BindingScene, item: Json, words: str) -> None:
    name = bindings.deployment()
    binding = bindings.bind(name, items=[item])
    message = bindings.sees_condition(binding, "Injected", "False", "Skipped")
    assert message == f"Deployment {name}: {words}"
    assert bindings.get(binding)["status"]["injectedWorkloads"] == 0


def test_what_the_api_server_refuses_is_told_and_not_repeated(bindings: BindingScene) -> None:
    name = bindings.deployment()
    binding = bindings.bind(name, items=[env(**{"not=valid": "x"})])
    message = bindings.sees_condition(binding, "Injected", "False", "Refused")
    assert name in message
    assert bindings.scene.events(binding, bindings.scene.namespace) == ["Refused"]
    mark = bindings.scene.cloud.audit_mark()
    # A right change is taken at once.
    bindings.change(binding, items=[env(VALID="x")])
    bindings.sees_condition(binding, "Injected", "True", "AllInjected")
    writes = [
        each for each in bindings.scene.writes(mark) if each.uri.startswith(f"{bindings.deployments}/{name}")
    ]
    assert len(writes) == 1


def test_a_client_that_takes_the_items_back_is_left_alone_after_three_writes(bindings: BindingScene) -> None:
    name = bindings.deployment()
    binding = bindings.bind(name, items=[image("app:2")])
    path = f"{bindings.deployments}/{name}"
    for _ in range(3):
        bindings.sees(name, lambda obj: image_of(obj) == "app:2")
        bindings.edit(name, {"template": {"spec": {"containers": [{"name": "app", "image": "app:1"}]}}})
    message = bindings.sees_condition(binding, "Conflict", "True", "NotHeld")
    assert message == f"another client takes the items back in Deployment {name}"
    assert image_of(bindings.scene.admin.get(path)) == "app:1"


def test_a_steady_binding_is_not_written(bindings: BindingScene) -> None:
    name = bindings.deployment()
    binding = bindings.bind(name, items=EVERYTHING)
    bindings.sees_condition(binding, "Injected", "True", "AllInjected")
    mark = bindings.scene.cloud.audit_mark()
    bindings.scene.admin.patch(f"{bindings.deployments}/{name}", {"metadata": {"annotations": {"a": "b"}}})
    # A second binding is seen later than that change.
    other = bindings.bind("none", items=[{"replicas": 1}])
    bindings.sees_condition(other, "SubjectFound", "False", "NoWorkload")
    uris = [each.uri for each in bindings.scene.writes(mark)]
    assert [uri for uri in uris if name in uri or f"{binding}/" in uri] == []
