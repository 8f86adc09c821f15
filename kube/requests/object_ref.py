"""Identifies the object or objects of a request, in any version of their API. Pure."""

from __future__ import annotations

from typing import NamedTuple

from kube.requests.request_info import RequestInfo, ResourceType

SAME_RESOURCE = {("events.k8s.io", "events"): ("", "events")}
"""Resources that exist in two groups: a write to one is a write to the other."""


class ObjectRef(NamedTuple):
    """One object; without a name all of a namespace, and without a namespace all of a resource."""

    group: str
    resource: str
    namespace: str = ""
    name: str = ""

    @classmethod
    def of(cls, info: RequestInfo) -> ObjectRef | None:
        """The objects of a request; None for a path that names none."""
        return cls.of_type(info.type, info.namespace, info.name) if info.type is not None else None

    @classmethod
    def of_type(cls, type_: ResourceType, namespace: str = "", name: str = "") -> ObjectRef:
        """The objects of a resource. The namespace of a Namespace is ignored."""
        group, resource = SAME_RESOURCE.get((type_.group, type_.resource), (type_.group, type_.resource))
        return cls(group, resource, "" if (group, resource) == ("", "namespaces") else namespace, name)

    @classmethod
    def parse(cls, text: str) -> ObjectRef | None:
        """Parse the reference that `text` wrote; None for an empty text."""
        return cls(*text.split("/")) if text else None

    @property
    def text(self) -> str:
        return "/".join(self)

    def named(self, name: str) -> ObjectRef:
        return self._replace(name=name)

    def meets(self, other: ObjectRef) -> bool:
        """True if some object belongs to both references."""
        same = self[:2] == other[:2]
        return same and all(
            not mine or not its or mine == its for mine, its in zip(self[2:], other[2:], strict=True)
        )
