"""An oracle of pools, nodes and grids: what must hold in the end, written without the product's code."""

from __future__ import annotations

import json
from collections.abc import Iterator

from kube.json_type import Json
from tests.controllers.support.scene import NODES, POOL_LABEL, POOLS, Scene, leaders


def wrong(scene: Scene, pools: list[str], grids: list[str]) -> list[str]:
    """Every rule that the cluster breaks, in words; [] when there is none."""
    nodes = scene.admin.get(NODES)["items"]
    found = [each for pool in pools for each in wrong_in_pool(scene.admin.get(f"{POOLS}/{pool}"), nodes)]
    for node in nodes:
        if POOL_LABEL not in labels(node) and "colour" in labels(node):
            found.append(f"{node['metadata']['name']} is in no pool and has a pool's label")
    services = {each["metadata"]["name"]: each for each in scene.admin.get(scene.services)["items"]}
    for name in grids:
        grid = scene.admin.get(f"{scene.grids}/{name}")
        found += wrong_in_grid(grid, services.get(f"{name}-svc"))
    return found


def wrong_in_pool(pool: Json, nodes: list[Json]) -> Iterator[str]:
    name, spec, status = pool["metadata"]["name"], pool["spec"], pool.get("status", {})
    members = {node["metadata"]["name"]: node for node in nodes if labels(node).get(POOL_LABEL) == name}
    ready = {each for each, node in members.items() if node["status"]["conditions"][0]["status"] == "True"}
    counts = (status.get("nodes"), status.get("readyNodeNum"), status.get("unreadyNodeNum"))
    if counts != (sorted(members), len(ready), len(members) - len(ready)):
        yield f"{name}: {counts} and not {sorted(members)}, {sorted(ready)} of them ready"
    chosen = leaders(pool) if status else []
    wanted = min(len(ready), spec["leaderReplicas"]) if spec["interConnectivity"] else 0
    if len(set(chosen)) != wanted or not set(chosen) <= ready:
        yield f"{name}: led by {chosen}, {wanted} wanted of {sorted(ready)}"
    for each, node in members.items():
        if labels(node).get("colour") != spec.get("labels", {}).get("colour"):
            yield f"{each}: {labels(node)}, but its pool {name} says {spec.get('labels')}"


def wrong_in_grid(grid: Json, service: Json | None) -> Iterator[str]:
    name, key = grid["metadata"]["name"], grid["spec"]["gridUniqKey"]
    if service is None:
        yield f"{name}: no service"
        return
    if json.loads(service["metadata"].get("annotations", {}).get("topologyKeys", "[]")) != [key]:
        yield f"{name}: not within {key}"
    have = [(each["port"], each.get("name", "")) for each in service["spec"]["ports"]]
    want = [(each["port"], each.get("name", "")) for each in grid["spec"]["template"]["ports"]]
    if have != want:
        yield f"{name}: ports {have} and not {want}"
    if service["spec"].get("selector") != grid["spec"]["template"].get("selector"):
        yield f"{name}: selector {service['spec'].get('selector')}"


def labels(obj: Json) -> dict[str, str]:
    found: dict[str, str] = obj["metadata"].get("labels", {})
    return found
