"""Tables rendered like by the server, compared with a real kube-apiserver's: columns, cells, conditions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube.json_type import Json
from kube.tables.server_table import KNOWN, RESOURCES, table
from tests.cloud.real import RealCloud
from tests.kube.support.every_kind import created, served

STATUSES = Path(__file__).parents[1] / "fixtures" / "tables.yaml"


def objects() -> dict[tuple[str, str], Json]:
    """Return the objects by kind and name."""
    found = yaml.safe_load_all(STATUSES.read_text())
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def cells(obj: Json) -> dict[str, Any]:
    """Return the cells of an object by their columns."""
    made = table([obj], obj["apiVersion"], obj["kind"], {}, "None")
    return dict(
        zip((each["name"] for each in made["columnDefinitions"]), made["rows"][0]["cells"], strict=True)
    )


@pytest.mark.parametrize(
    ("include", "kind"), [("None", None), ("Metadata", "PartialObjectMetadata"), ("Object", "Pod")]
)
def test_a_row_includes_the_requested_form_of_its_object(include: str, kind: str | None) -> None:
    (row,) = table([objects()["Pod", "failed"]], "v1", "Pod", {}, include)["rows"]
    assert (row["object"] or {}).get("kind") == kind
    assert [each["reason"] for each in row["conditions"]] == ["Failed"]


@pytest.mark.parametrize("obj", [{}, {"metadata": None}, {"metadata": {"name": "a"}}])
def test_an_unknown_kind_has_name_and_age(obj: Json) -> None:
    found = cells({"apiVersion": "example.com/v1", "kind": "Odd", **obj})
    assert list(found) == ["Name", "Age"]
    assert found["Age"] == "<unknown>"


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
        ("Deployment", "busy", "Ready", "2/3"),
        ("Deployment", "busy", "Containers", "c,d"),
        ("DaemonSet", "busy", "Node Selector", "x=y"),
        ("DaemonSet", "busy", "Available", 1),
        ("Job", "several", "Completions", "0/1 of 3"),
        ("Job", "suspended", "Status", "Suspended"),
    ],
)
def test_a_cell_equals_kubectls(kind: str, name: str, column: str, cell: object) -> None:
    assert cells(objects()[kind, name])[column] == cell


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
def test_a_pods_status_is_derived_from_its_containers(name: str, ready: str, status: str) -> None:
    found = cells(objects()["Pod", name])
    assert (found["Ready"], found["Status"]) == (ready, status)


def test_a_deleted_pod_is_terminating() -> None:
    pod = objects()["Pod", "deleted"]
    pod["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    assert cells(pod)["Status"] == "Terminating"


# -- on the real control plane -------------------------------------------------------------------------------------


pytestmark = pytest.mark.real


def test_tables_of_the_known_kinds_equal_the_servers(real_cloud: RealCloud, namespace: str) -> None:
    # An annotation that the server derives from a field of a DaemonSet, but not in Tables.
    of_its_own = "deprecated.daemonset.template.generation"

    def compared(found: Json) -> Any:
        """Return a Table with a constant age."""
        rows = []
        for row in found["rows"]:
            row["object"]["metadata"].get("annotations", {}).pop(of_its_own, None)
            if not row["object"]["metadata"].get("annotations"):
                row["object"]["metadata"].pop("annotations", None)
            cells = [
                re.sub(r"^(\d+[hms])+$", "AGE", cell) if isinstance(cell, str) else cell
                for cell in row["cells"]
            ]
            rows.append((cells, row.get("conditions"), row["object"]))
        return found["columnDefinitions"], rows

    kinds = [each for each in served(real_cloud) if "list" in each.verbs]
    as_table = "application/json;as=Table;v=v1;g=meta.k8s.io"
    with created(real_cloud, namespace, kinds), created(real_cloud, namespace, kinds, STATUSES):
        seen = set()
        for kind in kinds:
            key = kind.api_version.rpartition("/")[0], kind.kind
            assert ((key[0], kind.resource) in RESOURCES) is (key in KNOWN)
            if key not in KNOWN:
                continue
            seen.add(key)
            path = f"{kind.path}/{kind.resource}"
            sent = real_cloud.admin.request("GET", path, headers={"Accept": as_table}).json()
            objects = real_cloud.admin.get(path)["items"]
            made = table(
                [{"kind": kind.kind, "apiVersion": kind.api_version} | each for each in objects],
                kind.api_version,
                kind.kind,
                sent["metadata"],
                "Metadata",
            )
            assert compared(made) == compared(sent)
        assert seen == KNOWN
