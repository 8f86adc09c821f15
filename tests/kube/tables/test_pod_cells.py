"""The status of a pod. `test_server_table_real.py` holds its cells against a kube-apiserver's."""

from __future__ import annotations

import pytest

from tests.kube.support.tables import cells, objects


@pytest.mark.parametrize(
    ("name", "ready", "status"),
    [
        ("running", "1/2", "CrashLoopBackOff"),
        ("succeeded", "0/1", "Completed"),
        ("evicted", "0/1", "Evicted"),
        ("init", "0/2", "Init:1/3"),
        ("init-failed", "0/1", "Init:ExitCode:2"),
        ("init-waiting", "0/1", "Init:ImagePullBackOff"),
        ("not-ready", "1/2", "NotReady"),
    ],
)
def test_a_pods_status_is_that_of_its_containers(name: str, ready: str, status: str) -> None:
    found = cells(objects()["Pod", name])
    assert (found["Ready"], found["Status"]) == (ready, status)


def test_a_deleted_pod_is_terminating() -> None:
    pod = objects()["Pod", "deleted"]
    pod["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    assert cells(pod)["Status"] == "Terminating"
