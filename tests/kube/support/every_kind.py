"""All kinds that a real kube-apiserver serves, with an object of each that an empty cluster lacks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import orjson
import yaml

from tests.cloud.real import RealCloud

OBJECTS = Path(__file__).parents[1] / "fixtures" / "every_kind.yaml"


class Served(NamedTuple):
    path: str
    resource: str
    kind: str
    namespaced: bool
    verbs: list[str]
    api_version: str


def served(cloud: RealCloud) -> Iterator[Served]:
    paths = [
        "/api/v1",
        *(f"/apis/{each['preferredVersion']['groupVersion']}" for each in cloud.admin.get("/apis")["groups"]),
    ]
    for path in paths:
        for each in cloud.admin.get(path)["resources"] if _is_built_in(path) else ():
            if "/" not in each["name"]:
                api_version = path.removeprefix("/apis/").removeprefix("/api/")
                yield Served(path, each["name"], each["kind"], each["namespaced"], each["verbs"], api_version)


def _is_built_in(path: str) -> bool:
    """Return True if a group is Kubernetes' own: other tests may have installed their own kinds."""
    group = path.split("/")[2]
    return "." not in group or group.endswith(".k8s.io")


@contextmanager
def created(cloud: RealCloud, namespace: str, kinds: list[Served], objects: Path = OBJECTS) -> Iterator[None]:
    """Create the objects in a file in a namespace, each with its status. Cluster-scoped objects are deleted afterwards,
    as other tests count all objects."""
    made: list[str] = []
    try:
        made.extend(_create(cloud, namespace, kinds, objects))
        yield
    finally:
        for path in made:
            if cloud.admin.delete(path).get("kind") != "Status":  # a finalizer prevents its deletion
                patch = {"Content-Type": "application/merge-patch+json"}
                cloud.admin.request("PATCH", path, body=b'{"metadata":{"finalizers":null}}', headers=patch)


def _create(cloud: RealCloud, namespace: str, kinds: list[Served], objects: Path) -> Iterator[str]:
    """Create the objects; return the paths of the cluster-scoped ones."""
    by_kind = {(each.api_version, each.kind): each for each in kinds}
    for obj in yaml.safe_load_all(objects.read_text()):
        kind = by_kind[obj["apiVersion"], obj["kind"]]
        if kind.kind == "Event" and kind.path != "/api/v1":
            obj["regarding"]["namespace"] = namespace
        if kind.kind == "Event" and kind.path == "/api/v1":
            obj["involvedObject"]["namespace"] = namespace
        within = f"/namespaces/{namespace}" if kind.namespaced else ""
        status = obj.pop("status", None)
        cloud.admin.post(f"{kind.path}{within}/{kind.resource}", obj)
        if not within:
            yield f"{kind.path}/{kind.resource}/{obj['metadata']['name']}"
        if status is not None:
            path = f"{kind.path}{within}/{kind.resource}/{obj['metadata']['name']}/status"
            patch = {"Content-Type": "application/merge-patch+json"}
            body = orjson.dumps({"status": status})
            assert cloud.admin.request("PATCH", path, body=body, headers=patch).status == 200
