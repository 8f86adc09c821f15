"""The facts that the controller reads from a ServiceGrid."""

from __future__ import annotations

from dataclasses import dataclass, field

from controllers.runtime.events import ObjectReference
from controllers.runtime.informer import WatchedResource
from controllers.runtime.unstructured import mapping, metadata, number, objects, text, texts
from kube.json_type import Json
from kube.requests.request_info import ResourceType

GRID_TYPE = ResourceType("superedge.io", "v1", "servicegrids")
GRID_KIND = "ServiceGrid"


@dataclass(frozen=True, slots=True)
class Grid:
    """A grid keeps traffic among nodes with the same value of label `key`. `template` is the spec of its Service."""

    namespace: str
    name: str
    uid: str = ""
    generation: int = 0
    labels: dict[str, str] = field(default_factory=dict)
    key: str = ""
    template: Json = field(default_factory=dict)
    deleting: bool = False
    observed: int = 0
    conditions: tuple[Json, ...] = ()

    @property
    def service_name(self) -> str:
        return f"{self.name}-svc"

    @property
    def reference(self) -> ObjectReference:
        return ObjectReference(GRID_TYPE.api_version, GRID_KIND, self.namespace, self.name, self.uid)


def read_grid(obj: Json) -> Grid:
    meta, spec, status = metadata(obj), mapping(obj.get("spec")), mapping(obj.get("status"))
    return Grid(
        namespace=text(meta.get("namespace")),
        name=text(meta.get("name")),
        uid=text(meta.get("uid")),
        generation=number(meta.get("generation")),
        labels=texts(meta.get("labels")),
        key=text(spec.get("gridUniqKey")),
        template=mapping(spec.get("template")),
        deleting="deletionTimestamp" in meta,
        observed=number(status.get("observedGeneration")),
        conditions=tuple(objects(status.get("conditions"))),
    )


SERVICEGRIDS = WatchedResource(GRID_TYPE, read_grid)
