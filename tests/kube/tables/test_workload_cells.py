"""The cells of workloads. `test_server_table_real.py` holds all of them against a kube-apiserver's."""

from __future__ import annotations

import pytest

from tests.kube.support.tables import cells, objects


@pytest.mark.parametrize(
    ("kind", "name", "column", "cell"),
    [
        ("Deployment", "busy", "Ready", "2/3"),
        ("Deployment", "busy", "Containers", "c,d"),
        ("DaemonSet", "busy", "Node Selector", "x=y"),
        ("DaemonSet", "busy", "Available", 1),
        ("Job", "several", "Completions", "0/1 of 3"),
        ("Job", "suspended", "Status", "Suspended"),
    ],
)
def test_a_cell_says_what_kubectl_prints(kind: str, name: str, column: str, cell: object) -> None:
    assert cells(objects()[kind, name])[column] == cell
