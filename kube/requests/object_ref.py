"""Names the object or the objects that a request is about, in whichever version of their API. Pure."""

from __future__ import annotations

from typing import NamedTuple

from kube.requests.request_info import RequestInfo, ResourceType

SAME = {("events.k8s.io", "events"): ("", "events")}
"""Resources that two groups have: a write of the one is a write of the other."""


class ObjectRef(NamedTuple):
    """One object, or without a name all of a namespace, or without that too all of a resource."""

    group: str
    resource: str
    namespace: str = ""
    name: str = ""

    @classmethod
    def of(cls, info: RequestInfo) -> ObjectRef | None:
        """None for a path that names no objects."""
        return cls.of_type(info.type, info.namespace, info.name) if info.type is not None else None

    @classmethod
    def of_type(cls, type_: ResourceType, namespace: str = "", name: str = "") -> ObjectRef:
        """A Namespace is in no namespace, though its path says so."""
        group, resource = SAME.get((type_.group, type_.resource), (type_.group, type_.resource))
        return cls(group, resource, "" if (group, resource) == ("", "namespaces") else namespace, name)

    @classmethod
    def parse(cls, text: str) -> ObjectRef | None:
        """The reference that `text` gave; None for an empty text."""
        return cls(*text.split("/")) if text else None

    @property
    def text(self) -> str:
        return "/".join(self)

    def named(self, name: str) -> ObjectRef:
        return self._replace(name=name)

    def meets(self, other: ObjectRef) -> bool:
        """Whether an object may belong to both."""
        same = self[:2] == other[:2]
        return same and all(
            not mine or not its or mine == its for mine, its in zip(self[2:], other[2:], strict=True)
        )
