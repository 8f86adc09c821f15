"""The cells of core kinds. `test_server_table_real.py` holds all of them against a kube-apiserver's."""

from __future__ import annotations

import pytest

from tests.kube.support.tables import cells, objects


@pytest.mark.parametrize(
    ("kind", "name", "column", "cell"),
    [
        ("Service", "balanced", "External-IP", "203.0.113.1,203.0.113.2,a.example.com,203.0.113.9"),
        ("Service", "pending", "External-IP", "<pending>"),
        ("Service", "headless", "Selector", "a=b,b=c"),
        ("Endpoints", "many", "Endpoints", "10.0.0.1:80,[2001:db8::1]:80,10.0.0.3:80 + 3 more..."),
        ("Endpoints", "empty", "Endpoints", "<none>"),
        ("EndpointSlice", "many", "Endpoints", "10.0.0.1,10.0.0.2,10.0.0.3 + 1 more..."),
        ("Node", "ready", "Roles", "a,edge,old"),
        ("Node", "not-ready", "Status", "NotReady,SchedulingDisabled"),
        ("Event", "old", "Object", "pod/running"),
        ("PersistentVolumeClaim", "bound", "Access Modes", "RWO,RWX"),
    ],
)
def test_a_cell_says_what_kubectl_prints(kind: str, name: str, column: str, cell: str) -> None:
    assert cells(objects()[kind, name])[column] == cell
