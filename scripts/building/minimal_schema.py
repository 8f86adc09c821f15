"""The message fields that filters, selectors and codecs read or write, and `cut`, which extracts them from the schema.

A filter that reads another field needs its name here, and a run of `scripts/schemas --minimal --write`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from kube.message_table import META, META_GROUP_VERSION

MINIMAL_FILE = Path(__file__).parents[2] / "kube" / "wire" / "messages.txt"

CORE = "api.core.v1"
RUNTIME = "apimachinery.pkg.runtime"
WIRE = "wire"
"""The package of partial messages that are not the API's own: a codec parses only the fields that they have."""

_SLICE = "metadata endpoints ports addressType"
_CONDITIONS = "ready serving terminating"

NEEDED: Mapping[str, str] = {
    f"{META}.ObjectMeta": "name generateName namespace uid resourceVersion labels annotations managedFields",
    f"{META}.ManagedFieldsEntry": "manager",
    f"{META}.ListMeta": "resourceVersion continue remainingItemCount",
    f"{META}.PartialObjectMetadata": "metadata",
    f"{META}.Status": "status message reason details code",
    f"{META}.StatusDetails": "name group kind causes retryAfterSeconds uid",
    f"{META}.StatusCause": "reason message field",
    f"{META}.Time": "seconds nanos",
    f"{META}.WatchEvent": "type object",
    f"{RUNTIME}.TypeMeta": "apiVersion kind",
    f"{RUNTIME}.Unknown": "typeMeta= raw",
    f"{RUNTIME}.RawExtension": "raw",
    "apimachinery.pkg.util.intstr.IntOrString": "intVal",
    f"{CORE}.Service": "metadata spec",
    f"{CORE}.ServiceSpec": "ports selector clusterIP type externalName publishNotReadyAddresses clusterIPs ipFamilies"
    " loadBalancerClass",
    f"{CORE}.ServicePort": "name protocol port targetPort nodePort",
    f"{CORE}.Endpoints": "metadata subsets",
    f"{CORE}.EndpointSubset": "addresses notReadyAddresses ports",
    f"{CORE}.EndpointAddress": "ip targetRef hostname nodeName",
    f"{CORE}.EndpointPort": "name port protocol",
    f"{CORE}.Node": "metadata status",
    f"{CORE}.NodeStatus": "conditions addresses",
    f"{CORE}.NodeCondition": "type status reason message",
    f"{CORE}.NodeAddress": "type address",
    f"{CORE}.Pod": "metadata spec status",
    f"{CORE}.PodSpec": "containers serviceAccountName nodeName initContainers",
    f"{CORE}.Container": "name env",
    f"{CORE}.EnvVar": "name value",
    f"{CORE}.PodStatus": "phase hostIP podIP",
    f"{CORE}.ConfigMap": "metadata data immutable",
    f"{CORE}.Secret": "metadata type immutable",
    f"{CORE}.Namespace": "metadata status",
    f"{CORE}.NamespaceStatus": "phase",
    f"{CORE}.Event": "metadata involvedObject reason message count type reportingComponent",
    f"{CORE}.ObjectReference": "kind namespace name uid apiVersion",
    "api.discovery.v1.EndpointSlice": _SLICE,
    "api.discovery.v1.Endpoint": "addresses conditions hostname targetRef deprecatedTopology nodeName zone",
    "api.discovery.v1.EndpointConditions": _CONDITIONS,
    "api.discovery.v1.EndpointPort": "name protocol port",
    # Servers dropped this version in 1.25.
    "api.discovery.v1beta1.EndpointSlice": _SLICE,
    "api.discovery.v1beta1.Endpoint": "addresses conditions hostname targetRef topology nodeName",
    "api.discovery.v1beta1.EndpointConditions": _CONDITIONS,
    "api.discovery.v1beta1.EndpointPort": "name protocol port",
    "api.authentication.v1.TokenRequest": "metadata spec status",
    "api.authentication.v1.TokenRequestSpec": "audiences",
    "api.authentication.v1.TokenRequestStatus": "token expirationTimestamp",
    "api.coordination.v1.Lease": "metadata spec",
    "api.coordination.v1.LeaseSpec": "holderIdentity leaseDurationSeconds leaseTransitions",
    "api.events.v1.Event": "metadata reportingController action reason regarding note type",
}
"""JSON names of the needed fields by full message name; `typeMeta=` names the field without a JSON name."""

VIEWS: Mapping[str, tuple[str, str]] = {
    "AnyList": (f"{CORE}.ServiceList", "metadata items:[y"),
    "AnyMetadata": (f"{META}.PartialObjectMetadata", "metadata:[y"),
    "Peek": (f"{META}.PartialObjectMetadata", "metadata:PeekMeta"),
    "PeekMeta": (f"{META}.ObjectMeta", "name namespace resourceVersion labels"),
    "Nothing": (f"{META}.PartialObjectMetadata", ""),
}
"""The API message and the fields of each partial message, by name. `items:[y` declares `items` as a list of bytes."""

KINDS = frozenset({f"{META}.Status"})
"""Kinds of `meta.k8s.io` that are objects."""


def cut(
    published: str, needed: Mapping[str, str] = NEEDED, views: Mapping[str, tuple[str, str]] = VIEWS
) -> Iterator[str]:
    """Return the needed lines of the schema, in its order; ValueError for a name that the schema lacks."""
    lines: dict[str, str] = {}
    package = group = ""
    waiting: list[str] = []
    for line in published.splitlines():
        if line.startswith(("@", "=")):
            package, group = (line[1:], "") if line.startswith("@") else (package, line[1:])
            waiting = [line] if line.startswith("@") else [*waiting, line]
            continue
        name, _, fields = line.partition("|")
        full = f"{package}.{name.rstrip('!')}"
        lines[full] = fields
        if full in needed:
            yield from waiting
            waiting = []
            is_kind = name.endswith("!") and (full in KINDS if group == META_GROUP_VERSION else group != "")
            yield "|".join((name.rstrip("!") + "!" * is_kind, *_fields(full, fields, needed[full])))
    missing = needed.keys() - lines.keys()
    if missing:
        raise ValueError(f"not published: {', '.join(sorted(missing))}")
    yield f"@{WIRE}"
    for name, (full, names) in views.items():
        yield "|".join((name, *_fields(full, lines[full], names, package=full.rpartition(".")[0])))


def _fields(message: str, published: str, needed: str, package: str = "") -> Iterator[str]:
    by_name = {field.split(" ")[1]: field.split(" ") for field in published.split("|")}
    for wanted in needed.split():
        own, _, kind = wanted.partition(":")
        name, is_named, _ = own.partition("=")
        if ("" if is_named else name) not in by_name:
            raise ValueError(f"{message} has no field {own}")
        number, _, found = by_name["" if is_named else name]
        yield f"{number} {name} {kind or _with_package(found, package)}"


def _with_package(kind: str, package: str) -> str:
    """Qualify a kind with its package, as another package writes it."""
    bare = kind.lstrip("[{").rstrip("*?!")
    return kind.replace(bare, f"{package}.{bare}") if package and len(bare) > 1 and "." not in bare else kind
