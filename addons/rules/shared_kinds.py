"""Resources that every node reads completely: three kinds, and those in the rules' key `pool_resources`. One source
with the hub's identity serves all authorized callers, and the hubs of a pool read it from their leader."""

from __future__ import annotations

import re
from collections.abc import Collection

from kube.reflector.list_watch import ListWatch
from kube.requests.request_info import ResourceType
from kube.wire.encoding import Encoding

NAMES = frozenset({"metadata.name", "metadata.namespace"})
SHARED = {
    ("", "services"): NAMES | {"spec.clusterIP", "spec.type"},
    ("", "endpoints"): NAMES,
    ("discovery.k8s.io", "endpointslices"): NAMES,
}
"""Resources that are shared without any rule, with the fields that field selectors may name."""
NODES = ResourceType("", "v1", "nodes")
"""Nodes are shared as metadata only: each status is written every few minutes, and only its own node reads it."""
KIND = re.compile("[a-z0-9.-]{0,253}/v[0-9]{1,2}((alpha|beta)[0-9]{1,2})?/[a-z0-9-]{1,63}")
"""The pattern of a resource as NodePools write it; the policy of `addons.rules.admission_policy` uses the same."""
SECRETS = re.compile("/v[^/]*/secrets")
"""Never shared: no node may read all Secrets."""


def parse_kind(text: str) -> ResourceType:
    """Parse a resource that the rules add; ValueError for a malformed one, or one that is never shared."""
    if KIND.fullmatch(text) is None:
        raise ValueError("a resource is group/version/resource, as in /v1/nodes")
    if SECRETS.fullmatch(text) is not None:
        raise ValueError("secrets are never shared")
    return ResourceType(*text.split("/"))


def unfiltered_list_watch(type_: ResourceType, encoding: Encoding = Encoding.PROTOBUF) -> ListWatch:
    """Return the list-watch of all objects of a resource, as hubs share it."""
    return ListWatch(type_, encoding=encoding, metadata_only=type_ == NODES)


def is_opt_in(type_: ResourceType) -> bool:
    """Whether a rule must name a resource before it is shared."""
    return (type_.group, type_.resource) not in SHARED


def shared_fields(
    type_: ResourceType, further: Collection[ResourceType], *, metadata_only: bool
) -> frozenset[str] | None:
    """Return the fields by which callers may select from the shared source of a resource; None if callers have their
    own sources.

    `further` are the resources that the rules add; `metadata_only`: the caller requests metadata.
    """
    if not is_opt_in(type_):
        return SHARED[type_.group, type_.resource]
    is_served = metadata_only or not unfiltered_list_watch(type_).metadata_only
    return NAMES if type_ in further and is_served else None
