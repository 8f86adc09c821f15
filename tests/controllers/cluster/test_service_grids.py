"""Service grids as they are read."""

from __future__ import annotations

from controllers.cluster.service_grids import read_grid


def test_a_grid() -> None:
    grid = read_grid(
        {
            "metadata": {"namespace": "ns", "name": "g", "uid": "u", "generation": 4, "labels": {"a": "b"}},
            "spec": {"gridUniqKey": "zone1", "template": {"ports": [{"port": 80}]}},
            "status": {"observedGeneration": 3, "conditions": [{"type": "Ready", "status": "True"}]},
        }
    )
    assert (grid.service_name, grid.key, grid.labels) == ("g-svc", "zone1", {"a": "b"})
    assert (grid.generation, grid.observed, len(grid.conditions)) == (4, 3, 1)
    assert (grid.reference.kind, grid.reference.namespace, grid.reference.uid) == ("ServiceGrid", "ns", "u")
    assert not grid.deleting


def test_garbage_is_a_grid_without_a_key() -> None:
    grid = read_grid({"metadata": {"name": "g"}, "spec": {"gridUniqKey": 5, "template": []}, "status": 7})
    assert (grid.key, grid.template, grid.conditions) == ("", {}, ())
