"""The table of resources that the test cloud serves; a test can add to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Flag, auto

ALL_VERBS = ("create", "delete", "get", "list", "patch", "update", "watch")


class Trait(Flag):
    """A special behaviour of a resource at a real server, as observed with 1.36."""

    NONE = 0
    CLUSTER = auto()
    """The resource has no namespaces."""
    STATUS = auto()
    """There is a status subresource, and writes to the object itself do not change the status."""
    STATUS_AT_BIRTH = auto()
    """The status in a create request is stored nevertheless."""
    CUSTOM = auto()
    """A custom resource: JSON only, and generations are counted."""
    QUESTION = auto()
    """A create that is answered and not stored, such as a review."""
    DELETE_SHOWS_OBJECT = auto()
    """A DELETE returns the object, not a Status."""
    PUT_CREATES = auto()
    """A PUT of an absent object creates it."""
    PUT_NEEDS_VERSION = auto()
    """A PUT must name the resourceVersion that it replaces."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource of one group version; `name` is the plural, as in paths."""

    group: str
    version: str
    name: str
    kind: str
    traits: Trait = Trait.NONE
    short_name: str = ""
    selectable: tuple[str, ...] = ()
    """Fields, as dotted paths, that a field selector may use in addition to metadata.name and metadata.namespace."""
    storage_version: str = ""
    """The apiVersion in which its objects are stored, if it differs from this one."""

    @property
    def namespaced(self) -> bool:
        return Trait.CLUSTER not in self.traits

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_resource(self) -> str:
        """Return the name in error messages: "services", "leases.coordination.k8s.io"."""
        return f"{self.name}.{self.group}" if self.group else self.name

    @property
    def collection(self) -> str:
        """Return the storage key of its objects; versions and groups that serve the same objects share it."""
        return self.name if self.kind == "Event" else self.group_resource

    @property
    def stored_api_version(self) -> str:
        return self.storage_version or self.api_version

    @property
    def verbs(self) -> tuple[str, ...]:
        return ("create",) if Trait.QUESTION in self.traits else ALL_VERBS


_INVOLVED = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_EVENT = (*(f"involvedObject.{field}" for field in _INVOLVED), "reason", "reportingComponent", "type")
_NEW_EVENT = (*(f"regarding.{field}" for field in _INVOLVED), "reason", "reportingController", "type")
_POD = (
    *(
        f"spec.{field}"
        for field in ("nodeName", "restartPolicy", "schedulerName", "serviceAccountName", "hostNetwork")
    ),
    *(f"status.{field}" for field in ("phase", "podIP", "nominatedNodeName")),
)
_CLASS = Trait.CLUSTER | Trait.PUT_NEEDS_VERSION
_SERVICE = Trait.STATUS | Trait.DELETE_SHOWS_OBJECT | Trait.PUT_CREATES
_POOL = Trait.CUSTOM | Trait.CLUSTER | Trait.STATUS | Trait.PUT_NEEDS_VERSION

RESOURCES: tuple[Resource, ...] = (
    Resource("", "v1", "services", "Service", _SERVICE, "svc", ("spec.clusterIP", "spec.type")),
    Resource("", "v1", "endpoints", "Endpoints", Trait.PUT_CREATES, "ep"),
    Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice"),
    Resource(
        "",
        "v1",
        "nodes",
        "Node",
        Trait.CLUSTER | Trait.STATUS | Trait.STATUS_AT_BIRTH,
        "no",
        ("spec.unschedulable",),
    ),
    Resource("", "v1", "pods", "Pod", Trait.STATUS | Trait.DELETE_SHOWS_OBJECT, "po", _POD),
    Resource(
        "", "v1", "namespaces", "Namespace", Trait.CLUSTER | Trait.STATUS, "ns", ("status.phase", "name")
    ),
    Resource("", "v1", "configmaps", "ConfigMap", short_name="cm"),
    Resource("", "v1", "secrets", "Secret", selectable=("type",)),
    Resource("", "v1", "serviceaccounts", "ServiceAccount", Trait.DELETE_SHOWS_OBJECT, "sa"),
    Resource("", "v1", "events", "Event", Trait.PUT_CREATES, "ev", _EVENT),
    Resource(
        "events.k8s.io", "v1", "events", "Event", Trait.PUT_CREATES, "ev", _NEW_EVENT, storage_version="v1"
    ),
    Resource("coordination.k8s.io", "v1", "leases", "Lease", Trait.PUT_CREATES | Trait.PUT_NEEDS_VERSION),
    Resource("apps.openyurt.io", "v1beta2", "nodepools", "NodePool", _POOL, "np"),
    Resource("storage.k8s.io", "v1", "csidrivers", "CSIDriver", _CLASS),
    Resource("storage.k8s.io", "v1", "csinodes", "CSINode", _CLASS),
    Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", _CLASS | Trait.PUT_CREATES),
    Resource("networking.k8s.io", "v1", "servicecidrs", "ServiceCIDR", Trait.CLUSTER | Trait.STATUS),
    Resource(
        "authorization.k8s.io",
        "v1",
        "selfsubjectaccessreviews",
        "SelfSubjectAccessReview",
        Trait.CLUSTER | Trait.QUESTION,
    ),
    Resource(
        "authentication.k8s.io",
        "v1",
        "selfsubjectreviews",
        "SelfSubjectReview",
        Trait.CLUSTER | Trait.QUESTION,
    ),
)


class ResourceTable:
    """The served resources. Adding or removing one is like installing or removing a CRD."""

    def __init__(self, resources: Iterable[Resource] = RESOURCES) -> None:
        self._served: dict[tuple[str, str, str], Resource] = {}
        for resource in resources:
            self.add(resource)

    def __iter__(self) -> Iterator[Resource]:
        return iter(list(self._served.values()))

    def add(self, resource: Resource) -> None:
        """Serve a resource; it replaces one with the same group, version and name."""
        self._served[resource.group, resource.version, resource.name] = resource

    def at(self, group: str, version: str, name: str) -> Resource | None:
        return self._served.get((group, version, name))

    def named(self, name: str) -> Resource:
        """Return the first resource with that plural, with or without its group; KeyError if there is none."""
        for resource in self:
            if name in {resource.name, resource.group_resource}:
                return resource
        raise KeyError(f"no resource is named {name!r}")

    def of_kind(self, api_version: str, kind: str) -> Resource:
        """Return the resource whose objects have this apiVersion and kind; KeyError if there is none."""
        for resource in self:
            if (resource.api_version, resource.kind) == (api_version, kind):
                return resource
        raise KeyError(f"no resource has kind {kind!r} in {api_version!r}")

    @property
    def group_versions(self) -> list[tuple[str, str]]:
        """Return each served (group, version), in the order of the table."""
        return list(dict.fromkeys((resource.group, resource.version) for resource in self))

    def in_version(self, group: str, version: str) -> list[Resource]:
        return [one for one in self if (one.group, one.version) == (group, version)]
