"""`manager render`: shows the changes that bindings would make, and writes nothing.

Bindings, workloads and autoscalers come from files and, with a kubeconfig, from the namespaces of the bindings;
NodePools where a binding selects them by labels. A binding in a file replaces the cluster's binding of the same name.
"""

from __future__ import annotations

import argparse
import asyncio
import difflib
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from controllers.bindings.binding import BINDING_KIND, BINDING_TYPE, Binding, items_of, matching, read_binding
from controllers.bindings.rendering.injection import Rendering, Target, render
from controllers.bindings.rendering.slots import RECORD, read_record
from controllers.bindings.workloads import AUTOSCALERS, WORKLOAD_TYPES, read_autoscaler, read_workload
from controllers.cluster.node_pools import NodePool, read_pool
from controllers.runtime.connection import AccountSession, connect, find_account
from controllers.runtime.informer import served_type
from controllers.runtime.unstructured import mapping, metadata, objects, text
from kube.errors import StatusError
from kube.http.client import Client, Unreachable
from kube.json_type import Json
from kube.option import FlagParser
from kube.requests.node_pools import NODEPOOL_TYPE, NODEPOOL_VERSIONS
from kube.requests.request_info import ResourceType
from kube.wire.json_fields import parse_object

AUTOSCALER_KIND = "HorizontalPodAutoscaler"
POOL_KIND = "NodePool"
IDENTITY = "render"
"""The name of this program in the User-Agent header."""


@dataclass(slots=True)
class World:
    """The input of a preview. Bindings by namespace and name: a later one replaces an earlier one."""

    bindings: dict[tuple[str, str], Binding] = field(default_factory=dict)
    workloads: list[Json] = field(default_factory=list)
    autoscalers: list[Json] = field(default_factory=list)
    pools: dict[str, NodePool] = field(default_factory=dict)

    def add(self, obj: Json) -> None:
        """Add an object. Objects of other kinds are ignored."""
        kind = text(obj.get("kind"))
        if kind == BINDING_KIND:
            binding = read_binding(obj)
            self.bindings[(binding.namespace, binding.name)] = binding
        elif kind in WORKLOAD_TYPES:
            self.workloads.append(obj)
        elif kind == AUTOSCALER_KIND:
            self.autoscalers.append(obj)
        elif kind == POOL_KIND:
            pool = read_pool(obj)
            self.pools[pool.name] = pool


def make_parser() -> argparse.ArgumentParser:
    parser = FlagParser(
        prog="manager render", description="Show what bindings would change in workloads; changes nothing."
    )
    parser.add_argument(
        "-f",
        dest="files",
        action="append",
        required=True,
        type=Path,
        metavar="FILE",
        help="bindings and workloads in YAML or JSON; may be given several times",
    )
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="take the workloads from this cluster; it is only read",
    )
    parser.add_argument(
        "--namespace", default="default", help="of objects in files that name none (%(default)s)"
    )
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run the program; exit status 2 if a file, the kubeconfig or the cluster cannot be read."""
    given = make_parser().parse_args(arguments)
    try:
        from_files = list(load(given.files, given.namespace))
        namespaces = {text(metadata(obj).get("namespace")) for obj in from_files}
        selects = any(map(_selects, from_files))
        live = (
            asyncio.run(fetch(given.kubeconfig, sorted(namespaces), selects=selects))
            if given.kubeconfig
            else []
        )
    except (ValueError, OSError, yaml.YAMLError, StatusError, Unreachable) as error:
        print(f"manager render: {error}", file=sys.stderr)
        return 2
    world = World()
    for obj in [*live, *from_files]:
        world.add(obj)
    lines = [*differences(world)]
    print("\n".join(lines) if lines else "no workload would change")
    return 0


def load(files: Iterable[Path], namespace: str) -> Iterator[Json]:
    """Parse the objects of manifests; a List counts as its items. ValueError for a document that is not an object."""
    for path in files:
        for document in yaml.safe_load_all(path.read_text()):
            if document is None:
                continue
            if not isinstance(document, dict):
                raise ValueError(f"{path}: a document is not a Kubernetes object")
            for obj in objects(document.get("items")) if document.get("kind") == "List" else [document]:
                meta = obj["metadata"] = mapping(obj.get("metadata"))
                meta.setdefault("namespace", namespace)
                yield obj


async def fetch(kubeconfig: Path, namespaces: Iterable[str], *, selects: bool) -> list[Json]:
    """Read the bindings, workloads and autoscalers of namespaces from a cluster.

    Not every user may list NodePools, so they are read only if one of these bindings selects pools by labels, or if
    `selects` is true because a binding in a file does.
    """
    account = find_account(kubeconfig)
    await account.load()
    kinds = {BINDING_KIND: BINDING_TYPE, **WORKLOAD_TYPES, AUTOSCALER_KIND: AUTOSCALERS.type}
    read: list[Json] = []
    async with AccountSession(account) as session:
        client = connect(session, IDENTITY)
        for namespace in namespaces:
            for kind, resource in kinds.items():
                read += [{**obj, "kind": kind} for obj in await _list(client, resource, namespace)]
        if selects or any(_selects(obj) for obj in read):
            pools = await served_type(client, NODEPOOL_TYPE, NODEPOOL_VERSIONS)
            read += [{**obj, "kind": POOL_KIND} for obj in await _list(client, pools, "")] if pools else []
    return read


def _selects(obj: Json) -> bool:
    """Whether an object is a binding that selects pools by labels."""
    return obj.get("kind") == BINDING_KIND and read_binding(obj).selector is not None


async def _list(client: Client, resource: ResourceType, namespace: str) -> list[Json]:
    try:
        answer = await client.request("GET", resource.path(namespace))
    except StatusError as error:
        if error.code == 404 and resource == BINDING_TYPE:
            return []  # the kind is not installed yet: a preview is useful just before that
        raise
    return objects((await answer.decoded(parse_object)).get("items"))


def differences(world: World) -> Iterator[str]:
    """Return lines about each workload: its changes, and the items that do not fit it."""
    autoscalers = {read_autoscaler(obj) for obj in world.autoscalers}
    targets = {(autoscaler.namespace, autoscaler.kind, autoscaler.name) for autoscaler in autoscalers}
    for obj in world.workloads:
        workload = read_workload(obj)
        items = items_of(matching(world.bindings.values(), workload, world.pools.get))
        autoscaled = (workload.namespace, workload.kind, workload.name) in targets
        rendering = render(obj, read_record(obj), items, Target(workload.pool, autoscaled))
        name = f"{workload.kind} {workload.namespace}/{workload.name}"
        before, after = _shown(obj), _shown(rendering.workload)
        yield from difflib.unified_diff(before, after, name, f"{name} with its bindings", lineterm="")
        yield from _remarks(name, rendering)


def _remarks(name: str, rendering: Rendering) -> Iterator[str]:
    for skipped in rendering.skipped:
        yield f"# {name}: {skipped.binding}: {skipped}"
    for lost in rendering.overridden:
        yield f"# {name}: {lost.binding}: {lost.slot} is set by {lost.winner}"


def _shown(obj: Json) -> list[str]:
    """Format a workload's spec and annotations, without the record, as lines of YAML."""
    annotations = mapping(metadata(obj).get("annotations"))
    others = {key: value for key, value in annotations.items() if key != RECORD}
    shown = {"metadata": {"annotations": others}} if others else {}
    return yaml.safe_dump({**shown, "spec": obj.get("spec")}, sort_keys=True, width=1000).splitlines()
