"""The outdated pods of a DaemonSet, those replaced in a round, and their conditions."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from controllers.cluster.kinds import DaemonPod, Pod, read_pod
from controllers.updates.daemon_sets import (
    DaemonSet,
    Revision,
    Strategy,
    digest,
    newest,
    read_daemon_set,
    read_revision,
)
from controllers.updates.rollouts import (
    MAX_AT_ONCE,
    Replacements,
    Rollout,
    max_unavailable,
    need_upgrade_patch,
    to_replace,
)
from kube.json_type import Json

NOW = datetime(2026, 1, 2, 12, 0, 10, tzinfo=UTC)
READY_SINCE = "2026-01-02T12:00:00Z"
SET = DaemonSet("shop", "web", "set-1", Strategy.ADVANCED, max_unavailable="1", desired=3, template="t2")
NEW = Revision("shop", "web", "set-1", "h2", 2, "t2")
NODES = frozenset({"n1", "n2", "n3"})
MESSAGE = "controllerrevision: h2"


def rollout(**given: Any) -> Rollout:
    return Rollout(replace(SET, **given), NEW, {"h1": 1, "h2": 2})


def pod(node: str, revision: str = "h1", *, ready: bool = True, **given: Any) -> Pod:
    daemon = DaemonPod(
        f"uid-{node}", "web", "set-1", revision, ready_since=READY_SINCE if ready else "", **given
    )
    return Pod("shop", f"web-{node}", node, daemon=daemon)


def chosen(
    of: Rollout, *pods: Pod, ready: frozenset[str] = NODES, deleted: tuple[str, ...] = ()
) -> list[str]:
    return [each.node for each in to_replace(of, pods, ready, deleted, NOW).pods]


@pytest.mark.parametrize(
    ("revision", "is_outdated"),
    [("h1", True), ("h2", False), ("", True), ("h3", None)],
    ids=["older", "newest", "no label", "not known yet"],
)
def test_pods_of_lower_revision_numbers_are_outdated(revision: str, is_outdated: bool | None) -> None:
    daemon = pod("n1", revision).daemon
    assert daemon is not None
    assert rollout().is_outdated(daemon) is is_outdated


def test_a_pod_of_an_unknown_newer_template_is_not_outdated() -> None:
    """The pod's revision has arrived before the change of the DaemonSet."""
    old = Revision("shop", "web", "set-1", "h1", 1, "t1")
    behind = Rollout(replace(SET, template="t1"), old, {"h1": 1, "h2": 2})
    daemon = pod("n1", "h2").daemon
    assert daemon is not None
    assert behind.is_outdated(daemon) is False
    assert chosen(behind, pod("n1", "h2")) == []


@pytest.mark.parametrize(
    ("name", "pods", "given", "expected"),
    [
        ("one at a time", [pod("n1"), pod("n2"), pod("n3")], {}, ["n1"]),
        ("two", [pod("n1"), pod("n2"), pod("n3")], {"max_unavailable": "2"}, ["n1", "n2"]),
        ("percentage", [pod("n1"), pod("n2"), pod("n3")], {"max_unavailable": "34%"}, ["n1", "n2"]),
        ("new ones stay", [pod("n1", "h2"), pod("n2"), pod("n3", "h2")], {}, ["n2"]),
        ("a new one is not ready", [pod("n1", "h2", ready=False), pod("n2"), pod("n3")], {}, []),
        (
            "an old one that is not ready goes first",
            [pod("n1"), pod("n2", ready=False), pod("n3")],
            {},
            ["n2"],
        ),
        ("one is going", [pod("n1", deleting=True), pod("n2"), pod("n3")], {}, []),
        ("a node has none yet", [pod("n2"), pod("n3")], {}, []),
        ("two on a node", [pod("n1"), pod("n1", "h2"), pod("n2"), pod("n3")], {}, []),
        (
            "its images are being pulled",
            [pod("n1", image_ready=("False", "", MESSAGE)), pod("n2"), pod("n3")],
            {},
            ["n2"],
        ),
        (
            "its images cannot be pulled",
            [
                pod("n1", image_ready=("False", "PullImageFail", "pull image job x-h2 failed")),
                pod("n2"),
                pod("n3"),
            ],
            {},
            ["n2"],
        ),
        (
            "images of a former template",
            [pod("n1", image_ready=("False", "", "controllerrevision: h0")), pod("n2"), pod("n3")],
            {},
            ["n1"],
        ),
        ("ready too short", [pod("n1", "h2"), pod("n2"), pod("n3")], {"min_ready": 30}, ["n2", "n3"]),
    ],
)
def test_a_rollout_chooses_the_pods_to_replace(
    name: str, pods: list[Pod], given: dict[str, Any], expected: list[str]
) -> None:
    assert chosen(rollout(**given), *pods) == expected, name


def test_pods_of_unready_nodes_are_skipped_and_not_counted() -> None:
    pods = [pod("n1", ready=False), pod("n2"), pod("n3")]
    assert chosen(rollout(), *pods, ready=frozenset({"n2", "n3"})) == ["n2"]
    assert chosen(rollout(), *pods, ready=frozenset()) == []


def test_a_deletion_not_yet_observed_counts_as_unavailable() -> None:
    assert chosen(rollout(), pod("n1"), pod("n2"), pod("n3"), deleted=("uid-n1",)) == []


def test_the_rollout_is_reconciled_again_when_a_pod_becomes_available() -> None:
    found = to_replace(rollout(min_ready=30), [pod("n1", "h2"), pod("n2", "h2")], NODES, (), NOW)
    assert found == Replacements((), 20.0)


def test_the_number_of_pods_replaced_in_a_round_is_bounded() -> None:
    pods = [pod(f"n{number:03}") for number in range(MAX_AT_ONCE + 10)]
    ready = frozenset(each.node for each in pods)
    many = rollout(max_unavailable="100%", desired=len(pods))
    assert len(to_replace(many, pods, ready, (), NOW).pods) == MAX_AT_ONCE


@pytest.mark.parametrize(
    ("given", "nodes", "allowed"),
    [("1", 200, 1), ("10%", 200, 20), ("10%", 3, 1), ("34%", 3, 2), ("100%", 7, 7), ("5", 3, 5)],
)
def test_max_unavailable_is_a_number_or_a_percentage(given: str, nodes: int, allowed: int) -> None:
    assert max_unavailable(replace(SET, max_unavailable=given), nodes) == allowed


def condition(status: str, message: str = MESSAGE) -> tuple[str, str, str]:
    return status, "", message


@pytest.mark.parametrize(
    ("found", "of", "status", "message"),
    [
        (pod("n1"), rollout(), "True", MESSAGE),
        (pod("n1", "h2"), rollout(), "False", MESSAGE),
        (pod("n1", need_upgrade=condition("True")), rollout(), None, ""),
        (pod("n1", "h2", need_upgrade=condition("False")), rollout(), None, ""),
        (pod("n1", need_upgrade=condition("True", "controllerrevision: h0")), rollout(), "True", MESSAGE),
        (pod("n1", "h3"), rollout(), None, ""),
        (pod("n1"), None, None, ""),
        (pod("n1", need_upgrade=condition("True")), None, "False", MESSAGE),
    ],
    ids=["old", "new", "old and said", "new and said", "another", "unknown", "not asked", "no longer asked"],
)
def test_the_condition_pod_need_upgrade_is_written(
    found: Pod, of: Rollout | None, status: str | None, message: str
) -> None:
    assert found.daemon is not None
    patch = need_upgrade_patch(found.daemon, of)
    if status is None:
        assert patch == {}
        return
    [written] = patch["status"]["conditions"]
    assert (written["type"], written["status"], written["message"]) == ("PodNeedUpgrade", status, message)
    assert patch["metadata"] == {"uid": found.daemon.uid}


TEMPLATE: Json = {
    "metadata": {"creationTimestamp": None, "labels": {"app": "web"}},
    "spec": {
        "containers": [{"name": "main", "image": "web:2"}],
        "initContainers": [{"name": "first", "image": "init:1"}],
        "imagePullSecrets": [{"name": "registry"}],
    },
}


def daemon_set(strategy: str = "", unavailable: str = "", update: str = "OnDelete") -> DaemonSet:
    annotations = {
        "apps.openyurt.io/update-strategy": strategy,
        "apps.openyurt.io/max-unavailable": unavailable,
    }
    return read_daemon_set(
        {
            "metadata": {
                "namespace": "shop",
                "name": "web",
                "uid": "set-1",
                "annotations": {name: value for name, value in annotations.items() if value},
            },
            "spec": {"updateStrategy": {"type": update}, "template": TEMPLATE},
            "status": {"desiredNumberScheduled": 3},
        }
    )


@pytest.mark.parametrize(
    ("found", "strategy", "unavailable", "error"),
    [
        (daemon_set(), None, "10%", ""),
        (daemon_set("OTA"), Strategy.OTA, "10%", ""),
        (daemon_set("ota"), Strategy.OTA, "10%", ""),
        (daemon_set("AdvancedRollingUpdate", "2"), Strategy.ADVANCED, "2", ""),
        (daemon_set("Auto", "30%"), Strategy.ADVANCED, "30%", ""),
        (daemon_set("AdvancedRollingUpdate", "0"), Strategy.ADVANCED, "10%", ""),
        (daemon_set("AdvancedRollingUpdate", "0%"), Strategy.ADVANCED, "10%", ""),
        (daemon_set("AdvancedRollingUpdate", "many"), Strategy.ADVANCED, "10%", "neither a number"),
        (daemon_set("AdvancedRollingUpdate", "9999999"), Strategy.ADVANCED, "10%", "neither a number"),
        (daemon_set("OTA", update="RollingUpdate"), Strategy.OTA, "10%", "OnDelete"),
        (daemon_set("Sometimes"), None, "10%", "neither OTA nor AdvancedRollingUpdate"),
    ],
)
def test_annotations_of_an_update_strategy_are_parsed(
    found: DaemonSet, strategy: Strategy | None, unavailable: str, error: str
) -> None:
    assert (found.strategy, found.max_unavailable) == (strategy, unavailable)
    assert error in found.error
    assert bool(error) == bool(found.error)


def test_the_images_of_a_template_include_init_containers() -> None:
    found = daemon_set("OTA")
    assert found.images == (("main", "web:2"), ("first", "init:1"))
    assert found.pull_secrets == ("registry",)


def revision(number: int, template: Json, kind: str = "DaemonSet") -> Revision:
    owner = {"kind": kind, "name": "web", "uid": "set-1", "controller": True}
    labels = {"controller-revision-hash": f"h{number}"}
    return read_revision(
        {
            "metadata": {"namespace": "shop", "labels": labels, "ownerReferences": [owner]},
            "revision": number,
            "digest": digest(template),
        }
    )


def test_the_revision_of_the_current_template_is_found() -> None:
    written = {"$patch": "replace", "metadata": {"labels": {"app": "web"}}, "spec": TEMPLATE["spec"]}
    former = {**written, "spec": {"containers": []}}
    current = newest(daemon_set("OTA"), [revision(1, written), revision(2, former)])
    assert current is not None
    assert current.hash == "h1"
    again = newest(daemon_set("OTA"), [revision(3, written), revision(2, former)])
    assert again is not None
    assert again.number == 3
    assert newest(daemon_set("OTA"), [revision(2, former)]) is None, "it is not written yet"
    assert revision(1, written, kind="StatefulSet").owner_uid == ""


def test_facts_of_a_pod_are_read() -> None:
    owner = {"kind": "DaemonSet", "name": "web", "uid": "set-1", "controller": True}
    need = {"type": "PodNeedUpgrade", "status": "True", "message": MESSAGE}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": READY_SINCE}
    obj = {
        "metadata": {
            "name": "p",
            "uid": "u",
            "labels": {"controller-revision-hash": "h1"},
            "ownerReferences": [owner],
        },
        "status": {"conditions": [need, ready]},
    }
    assert read_pod(obj).daemon == DaemonPod(
        *("u", "web", "set-1", "h1"), ready_since=READY_SINCE, need_upgrade=("True", "", MESSAGE)
    )
    owner["kind"] = "ReplicaSet"
    assert read_pod(obj).daemon is None
