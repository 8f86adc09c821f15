"""The rendering of workloads, item by item: values that are set, items that are skipped, and how they are restored."""

from __future__ import annotations

import copy
from typing import Any

import orjson
import pytest

from controllers.bindings.rendering.injection import MAX_WORK, Overridden, Skipped, Target
from controllers.bindings.rendering.slots import LARGEST_RECORD, RECORD, read_record
from controllers.runtime import metrics
from kube.json_type import Json
from tests.controllers.support.workloads import (
    DEPLOYMENT,
    claim,
    config_map,
    container,
    daemon_set,
    env,
    image,
    items,
    patch,
    rendered,
    secret,
    stateful_set,
)


def at(workload: Json, path: str) -> Any:
    """Return a part of a workload's spec, by the names of its fields and of its list entries."""
    value: Any = workload["spec"]
    for step in path.split("."):
        if isinstance(value, list):
            [value] = [each for each in value if each["name"] == step]
        else:
            value = value[step]
    return value


CONTAINERS = "template.spec.containers"


@pytest.mark.parametrize(
    ("item", "path", "value"),
    [
        ({"replicas": 5}, "replicas", 5),
        ({"replicas": 0}, "replicas", 0),
        ({"upgradeStrategy": "Recreate"}, "strategy", {"type": "Recreate"}),
        (image("app:2"), f"{CONTAINERS}.app.image", "app:2"),
        (image("r/{{nodepool}}:2"), f"{CONTAINERS}.app.image", "r/hangzhou:2"),
        (image("setup:2", "setup"), "template.spec.initContainers.setup.image", "setup:2"),
        (env(A="x"), f"{CONTAINERS}.app.env.A", {"name": "A", "value": "x"}),
        (env(S="x"), f"{CONTAINERS}.app.env.S", {"name": "S", "value": "x"}),
        (env(NEW="{{nodepool-name}}"), f"{CONTAINERS}.app.env.NEW", {"name": "NEW", "value": "hangzhou"}),
        (env(A=""), f"{CONTAINERS}.app.env.A", {"name": "A"}),
        (env("side", A="x"), f"{CONTAINERS}.side.env.A", {"name": "A", "value": "x"}),
        (config_map("{{nodepool}}-config"), "template.spec.volumes.config.configMap.name", "hangzhou-config"),
        (config_map("c", key="configMapSource"), "template.spec.volumes.config.configMap.name", "c"),
        (
            claim("claim-{{nodepool}}"),
            "template.spec.volumes.data.persistentVolumeClaim.claimName",
            "claim-hangzhou",
        ),
        (secret("{{nodepool}}-keys"), "template.spec.volumes.keys.secret.secretName", "hangzhou-keys"),
        ({"minReadySeconds": 30}, "minReadySeconds", 30),
        (
            {"podLabels": {"site": "{{nodepool}}"}},
            "template.metadata.labels",
            {"app": "web", "site": "hangzhou"},
        ),
        (
            {"podAnnotations": {"example.org/Site": "of {{nodepool}}"}},
            "template.metadata.annotations",
            {"example.org/Site": "of hangzhou"},
        ),
    ],
)
def test_an_item_sets_its_slot_and_its_removal_restores_the_workload(
    item: Json, path: str, value: object
) -> None:
    before = copy.deepcopy(DEPLOYMENT)
    made = rendered(before, items(item))
    assert before == DEPLOYMENT
    assert at(made.workload, path) == value
    assert (made.skipped, made.overridden) == ((), ())
    assert len(made.record) == 1
    again = rendered(made.workload, items(item))
    assert again.workload == made.workload
    assert rendered(made.workload, []).workload == DEPLOYMENT


@pytest.mark.parametrize("strategy", ["OnDelete", "RollingUpdate"])
def test_an_upgrade_strategy_is_set_on_a_stateful_set(strategy: str) -> None:
    before = stateful_set()
    made = rendered(before, items({"upgradeStrategy": strategy}))
    # A strategy of the wanted type retains its own numbers.
    changed = {"type": "OnDelete"} if strategy == "OnDelete" else before["spec"]["updateStrategy"]
    assert made.workload["spec"]["updateStrategy"] == changed
    assert "strategy" not in made.workload["spec"]
    assert rendered(made.workload, []).workload == before


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("OnDelete", {"type": "OnDelete"}),
        ("RollingUpdate", {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}),
    ],
)
def test_an_upgrade_strategy_is_set_on_a_daemon_set(name: str, stored: Json) -> None:
    before = daemon_set()
    before["spec"]["updateStrategy"] = {"type": "unset"}
    made = rendered(before, items({"upgradeStrategy": name}))
    assert made.workload["spec"]["updateStrategy"] == stored
    assert rendered(made.workload, []).workload == before


def test_min_ready_seconds_of_0_removes_the_field() -> None:
    """The API server does not store 0."""
    assert rendered(DEPLOYMENT, items({"minReadySeconds": 0})).record == {}
    before = copy.deepcopy(DEPLOYMENT)
    before["spec"]["minReadySeconds"] = 5
    made = rendered(before, items({"minReadySeconds": 0})).workload
    assert "minReadySeconds" not in made["spec"]
    assert rendered(made, items({"minReadySeconds": 0})).workload == made
    assert rendered(made, []).workload == before


def test_a_writers_labels_are_retained_with_those_of_items() -> None:
    live = rendered(
        DEPLOYMENT, items({"podLabels": {"site": "a", "app.kubernetes.io/part-of": "b"}})
    ).workload
    labels = live["spec"]["template"]["metadata"]["labels"]
    labels |= {"site": "writer", "team": "x"}
    live = rendered(live, items({"podLabels": {"site": "a"}})).workload
    labels = live["spec"]["template"]["metadata"]["labels"]
    assert labels == {"app": "web", "site": "a", "team": "x"}
    back = rendered(live, []).workload["spec"]["template"]["metadata"]["labels"]
    assert back == {"app": "web", "site": "writer", "team": "x"}


def test_a_default_added_by_the_server_is_not_treated_as_a_writers_change() -> None:
    before = stateful_set()
    before["spec"]["updateStrategy"] = {"type": "OnDelete"}
    made = rendered(before, items({"upgradeStrategy": "RollingUpdate"})).workload
    made["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] = 1
    assert rendered(made, []).workload == before


def test_other_fields_beside_an_item_are_retained() -> None:
    """`envFrom`, keys of a ConfigMap volume, block devices, and mounts of an init container."""
    before = copy.deepcopy(DEPLOYMENT)
    spec = before["spec"]["template"]["spec"]
    spec["containers"][1]["envFrom"] = [{"configMapRef": {"name": "all"}, "prefix": "P_"}]
    spec["initContainers"][0]["volumeMounts"] = [{"name": "site", "mountPath": "/site", "subPath": "a"}]
    spec["initContainers"][0]["volumeDevices"] = [{"name": "disk", "devicePath": "/dev/xvda"}]
    spec["volumes"] += [
        {
            "name": "site",
            "configMap": {"name": "site", "items": [{"key": "a", "path": "a"}], "optional": True},
        },
        {"name": "disk", "persistentVolumeClaim": {"claimName": "disk", "readOnly": True}},
        {"name": "all", "projected": {"sources": [{"configMap": {"name": "site"}}]}},
    ]
    wanted = copy.deepcopy(before)
    there = wanted["spec"]["template"]["spec"]
    there["containers"][1]["env"] = [{"name": "A", "value": "x"}]
    there["initContainers"][0]["env"] = [{"name": "B", "value": "hangzhou"}]
    there["volumes"][3]["configMap"]["name"] = "site-hangzhou"
    there["volumes"][4]["persistentVolumeClaim"]["claimName"] = "disk-hangzhou"
    given = items(
        env("side", A="x"),
        env("setup", B="{{nodepool}}"),
        config_map("site-{{nodepool}}", container="setup", volume="site"),
        claim("disk-{{nodepool}}", container="setup", volume="disk"),
    )
    made = rendered(before, given)
    assert (made.workload["spec"], made.skipped) == (wanted["spec"], ())
    assert rendered(made.workload, []).workload == before


def test_new_variables_are_added_sorted_after_those_of_the_template() -> None:
    made = rendered(DEPLOYMENT, items(env(Z="1", B="2"), env(M="3"))).workload
    assert [each["name"] for each in container(made)["env"]] == ["A", "S", "B", "M", "Z"]


@pytest.mark.parametrize(
    ("item", "slot", "reason"),
    [
        (image("x", "none"), "image/none", "ContainerNotFound"),
        (env("none", A="x"), "env/none/A", "ContainerNotFound"),
        (config_map("x", container="none"), "configmap/config", "ContainerNotFound"),
        (config_map("x", container="side"), "configmap/config", "VolumeNotMounted"),
        (config_map("x", volume="none"), "configmap/none", "VolumeNotMounted"),
        (config_map("x", volume="data"), "configmap/data", "VolumeOfOtherType"),
        (claim("x", volume="config"), "pvc/config", "VolumeOfOtherType"),
        ({"upgradeStrategy": "OnDelete"}, "strategy", "StrategyNotForKind"),
        (secret("x", volume="config"), "secret/config", "VolumeOfOtherType"),
        ({"minReadySeconds": 600}, "minreadyseconds", "LongerThanDeadline"),
        ({"podLabels": {"app": "other"}}, "label/app", "LabelOfSelector"),
        ({"podLabels": {"-/a": "x"}}, "label/-/a", "InvalidLabel"),
        ({"podLabels": {"a": f"{{{{nodepool}}}}{'x' * 60}"}}, "label/a", "InvalidLabel"),
        ({"podAnnotations": {"a/b/c": "x"}}, "annotation/a/b/c", "InvalidAnnotation"),
        ({"unknown": {}}, None, None),
    ],
)
def test_an_item_for_a_missing_slot_is_skipped(item: Json, slot: str | None, reason: str | None) -> None:
    made = rendered(DEPLOYMENT, items(item))
    assert made.workload == DEPLOYMENT
    assert made.skipped == ((Skipped("b", slot, reason),) if slot and reason else ())


def test_the_recreate_strategy_is_skipped_for_a_stateful_set() -> None:
    made = rendered(stateful_set(), items({"upgradeStrategy": "Recreate"}))
    assert made.skipped == (Skipped("b", "strategy", "StrategyNotForKind"),)


@pytest.mark.parametrize(
    ("item", "slot", "reason"),
    [
        ({"replicas": 1}, "replicas", "ReplicasNotForKind"),
        ({"upgradeStrategy": "Recreate"}, "strategy", "StrategyNotForKind"),
    ],
)
def test_replicas_and_recreate_are_skipped_for_a_daemon_set(item: Json, slot: str, reason: str) -> None:
    made = rendered(daemon_set(), items(item))
    assert (made.workload, made.skipped) == (daemon_set(), (Skipped("b", slot, reason),))


def test_an_own_progress_deadline_allows_longer_min_ready_seconds() -> None:
    before = copy.deepcopy(DEPLOYMENT)
    before["spec"]["progressDeadlineSeconds"] = 1200
    before["spec"]["selector"] = {"matchExpressions": [{"key": "tier", "operator": "Exists"}]}
    made = rendered(before, items({"minReadySeconds": 600}, {"podLabels": {"tier": "x", "app": "other"}}))
    assert made.workload["spec"]["minReadySeconds"] == 600
    assert [str(each) for each in made.skipped] == ["label/tier: LabelOfSelector"]


def test_replicas_of_an_autoscaled_workload_are_not_set() -> None:
    target = Target("hangzhou", autoscaled=True)
    made = rendered(DEPLOYMENT, items({"replicas": 9}), target)
    assert made.workload == DEPLOYMENT
    assert made.skipped == (Skipped("b", "replicas", "AutoscalerOwnsReplicas"),)


def test_a_later_binding_wins_and_the_loser_is_named() -> None:
    given = [*items(image("first"), binding="a"), *items(image("second"), binding="b")]
    made = rendered(DEPLOYMENT, given)
    assert container(made.workload)["image"] == "second"
    assert made.overridden == (Overridden("a", "image/app", "b"),)
    # Two bindings with the same value are no conflict.
    same = [*items(image("x"), binding="a"), *items(image("x"), binding="b")]
    assert rendered(DEPLOYMENT, same).overridden == ()


def test_a_writers_own_value_becomes_the_value_to_restore() -> None:
    live = rendered(DEPLOYMENT, items(image("injected"))).workload
    container(live)["image"] = "app:2"
    live = rendered(live, items(image("injected"))).workload
    assert container(live)["image"] == "injected"
    assert container(rendered(live, []).workload)["image"] == "app:2"


def test_patches_come_after_all_items_and_win() -> None:
    given = [
        *items(patch("replace", "/containers/0/image", "patched"), image("own"), binding="a"),
        *items(image("later"), patch("add", "/volumes/-", {"name": "x"}), binding="b"),
    ]
    made = rendered(DEPLOYMENT, given)
    assert container(made.workload)["image"] == "patched"
    assert made.overridden == (Overridden("a", "image/app", "b"), Overridden("b", "image/app", "a"))
    # A binding's own patch over its own item is no conflict.
    own = rendered(DEPLOYMENT, items(image("own"), patch("replace", "/containers/0/image", "patched")))
    assert own.overridden == ()
    assert rendered(own.workload, []).workload == DEPLOYMENT


@pytest.mark.parametrize(
    ("first", "second", "lost"),
    [
        (patch("replace", "/hostNetwork", True), patch("replace", "/hostNetwork", False), True),
        (patch("add", "/hostNetwork", True), patch("remove", "/hostNetwork"), True),
        (patch("replace", "/hostNetwork", True), patch("replace", "/hostNetwork", True), False),
        (patch("add", "/volumes/-", {"name": "x"}), patch("add", "/volumes/-", {"name": "y"}), False),
        (patch("add", "/volumes/0", {"name": "x"}), patch("add", "/volumes/0", {"name": "y"}), False),
        (patch("replace", "/volumes/0", {"name": "x"}), patch("replace", "/volumes/0", {"name": "y"}), True),
    ],
)
def test_the_later_of_two_bindings_that_patch_the_same_field_wins(
    first: Json, second: Json, *, lost: bool
) -> None:
    made = rendered(DEPLOYMENT, [*items(first, binding="a"), *items(second, binding="b")])
    path = first["patch"]["path"]
    assert made.overridden == ((Overridden("a", path, "b"),) if lost else ())


def test_patches_are_recorded_field_by_field() -> None:
    given = items(patch("add", "/containers/0/env/1", {"name": "NEW", "value": "{{nodepool}}"}))
    made = rendered(DEPLOYMENT, given).workload
    new = {"name": "NEW", "value": "hangzhou"}
    record = orjson.loads(made["metadata"]["annotations"][RECORD])
    assert record == {"field/containers/name=app/env/name=NEW": {"was": None, "set": new, "at": 1}}
    assert read_record(made) == rendered(DEPLOYMENT, given).record


def test_patches_that_make_the_record_too_large_inject_nothing() -> None:
    given = items(image("y"), patch("add", "/hostname", "x" * LARGEST_RECORD))
    made = rendered(DEPLOYMENT, given)
    assert made.workload == DEPLOYMENT
    assert [(each.slot, each.reason) for each in made.skipped] == [
        ("image/app", "RecordTooLarge"),
        ("patch add /spec/template/spec/hostname", "RecordTooLarge"),
    ]


def test_a_too_deep_patch_is_skipped_and_other_items_apply() -> None:
    deep: Any = "x"
    for _ in range(5_000):
        deep = {"a": deep}
    made = rendered(DEPLOYMENT, items(image("y"), patch("add", "/hostAliases", deep)))
    assert [each.reason for each in made.skipped] == ["ValueTooDeep"]
    assert at(made.workload, "template.spec.containers.app.image") == "y"


def test_the_record_is_on_the_workload_only() -> None:
    made = rendered(DEPLOYMENT, items(image("x"), env(NEW="y"))).workload
    assert orjson.loads(made["metadata"]["annotations"][RECORD]) == {
        "image/app": {"was": "app:1", "set": "x"},
        "env/app/NEW": {"was": None, "set": {"name": "NEW", "value": "y"}},
    }
    assert RECORD not in str(made["spec"])


def test_other_annotations_are_retained() -> None:
    before = copy.deepcopy(DEPLOYMENT)
    before["metadata"]["annotations"] = {"a": "b"}
    made = rendered(before, items(image("x"))).workload
    assert made["metadata"]["annotations"].keys() == {"a", RECORD}
    assert rendered(made, []).workload == before


def test_a_record_that_would_be_too_large_injects_nothing() -> None:
    large = env(**{f"V{number}": "x" * 32768 for number in range(LARGEST_RECORD // 32768)})
    made = rendered(DEPLOYMENT, items(image("y"), large))
    assert made.workload == DEPLOYMENT
    assert {each.reason for each in made.skipped} == {"RecordTooLarge"}
    # Earlier injections are restored.
    live = rendered(DEPLOYMENT, items(image("y"))).workload
    assert rendered(live, items(image("y"), large)).workload == DEPLOYMENT


def test_a_removed_container_removes_its_records() -> None:
    live = rendered(DEPLOYMENT, items(image("x", "side"), env("side", A="y"))).workload
    del live["spec"]["template"]["spec"]["containers"][1]
    made = rendered(live, items(image("x", "side")))
    assert made.record == {}
    assert RECORD not in made.workload["metadata"].get("annotations", {})


@pytest.mark.parametrize(
    "workload", [{}, {"metadata": None, "spec": []}, {"spec": {"template": {"spec": 1}}}]
)
def test_a_malformed_workload_has_no_slots(workload: Json) -> None:
    made = rendered(workload, items(image("x"), env(A="y"), config_map("z")))
    assert {each.reason for each in made.skipped} == {"ContainerNotFound"}


def test_a_record_that_is_too_expensive_to_apply_is_ignored() -> None:
    """A user who may edit a workload controls both the searched values and the searched lists."""

    def reached_work() -> float:
        return float(metrics.BOUNDS_REACHED.labels("work of a rendering")._value.get())

    before, live = reached_work(), copy.deepcopy(DEPLOYMENT)
    entries: Json = {
        f'field/tolerations/{{"key":"k{number}"}}': {"was": None, "set": {}} for number in range(600)
    }
    live["metadata"]["annotations"] = {RECORD: orjson.dumps(entries).decode()}
    live["spec"]["template"]["spec"]["tolerations"] = [{"key": "x" * (MAX_WORK // 600)}]
    made = rendered(live, items(image("x")))
    assert reached_work() == before + 1
    assert list(map(str, made.record)) == ["image/app"]


def test_items_that_are_too_expensive_are_skipped_and_earlier_ones_restored() -> None:
    live = rendered(DEPLOYMENT, items(image("x"))).workload
    many = [
        each for number in range(20) for each in items(env(**{f"V{number}-{n}": "x" for n in range(200)}))
    ]
    made = rendered(live, many)
    assert made.workload == DEPLOYMENT
    assert [(each.slot, each.reason) for each in made.skipped] == [("all items", "TooMuchWork")]
