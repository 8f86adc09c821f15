"""Labels of a Node that its kubelet repairs, and those that a kubelet may not change."""

from __future__ import annotations

import pytest

from addons.offline.writes.own_labels import labels_of_others
from kube.requests.node_pools import POOL_LABEL

HOST, BEFORE = "kubernetes.io/hostname", {"kubernetes.io/hostname": "n1", "app": "web"}
RESTRICTED = "node-restriction.kubernetes.io/x"


@pytest.mark.parametrize(
    ("kind", "after", "others"),
    [
        ("Node", BEFORE, []),
        ("Node", BEFORE | {HOST: "other", "kubernetes.io/os": "linux"}, []),
        ("Node", {"app": "web"}, []),
        ("Node", BEFORE | {POOL_LABEL: "hangzhou"}, [POOL_LABEL]),
        ("Node", BEFORE | {"app": "db", RESTRICTED: ""}, ["app", RESTRICTED]),
        ("Node", {HOST: "n1"}, ["app"]),
        ("Pod", BEFORE, []),
        ("Pod", BEFORE | {HOST: "other"}, [HOST]),
        ("Pod", {}, ["app", HOST]),
    ],
)
def test_what_a_write_may_not_change(kind: str, after: dict[str, str], others: list[str]) -> None:
    assert labels_of_others(kind, BEFORE, after) == others
