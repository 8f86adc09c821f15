"""A node's copies of ConfigMaps, in each form in which they may be stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from addons.requests.cloud_identity import HUB_IDENTITY, CloudIdentity
from kube.json_type import Json
from kube.reflector.list_watch import ListWatch
from kube.requests.request_info import ResourceType
from kube.wire.encoding import Encoding
from tests.addons.support.copying import copies_in
from tests.addons.support.offline_parts import JSON, PROTOBUF
from tests.addons.support.offline_world import OfflineWorld, open_world

TYPE = ResourceType("", "v1", "configmaps")
MAPS = ListWatch(TYPE, encoding=Encoding.JSON)
LIST = "/api/v1/namespaces/a/configmaps"
PATH = f"{LIST}/x"
EVERYWHERE = "/api/v1/configmaps"
OTHER = CloudIdentity("pod", "Bearer t")
FORMER_ROWS = [1]
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def config_map(value: str, version: int, name: str = "x", **metadata: object) -> Json:
    meta = {"name": name, "namespace": "a", "uid": f"uid of {name}", "resourceVersion": str(version)}
    return {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {**meta, **metadata},
        "data": {"value": value},
    }


def list_of(version: int, *items: Json) -> Json:
    return {
        "kind": "ConfigMapList",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": str(version)},
        "items": [*items],
    }


class World(OfflineWorld):
    async def value(
        self, target: str = PATH, accept: str = JSON, identity: CloudIdentity = HUB_IDENTITY
    ) -> object:
        found = await self.get(target, accept, identity)
        return found["data"]["value"] if isinstance(found, dict) else found

    async def values(self, target: str = LIST) -> dict[str, str] | int | None:
        found = await self.get(target)
        if not isinstance(found, dict):
            return found
        return {item["metadata"]["name"]: item["data"]["value"] for item in found["items"]}


@asynccontextmanager
async def world_in(folder: Path) -> AsyncIterator[World]:
    async with copies_in(folder) as copies, open_world(World(copies)) as made:
        await asyncio.gather(*copies.access.loading)
        yield made


def keep_in_both(world: World) -> None:
    for accept in (JSON, PROTOBUF):
        world.keep(PATH, OLD, accept=accept)


OLD = config_map("old", 4)
STORED_BEFORE: dict[str, Callable[[World], object]] = {
    "JSON": lambda world: world.keep(PATH, OLD),
    "protobuf": lambda world: world.keep(PATH, OLD, accept=PROTOBUF),
    "both": keep_in_both,
    "another's": lambda world: world.keep(PATH, OLD, identity=OTHER),
    "a copy": lambda world: world.hold(MAPS, 5, OLD),
    "a copy in protobuf": lambda world: world.hold(MAPS._replace(encoding=Encoding.PROTOBUF), 5, OLD),
    "a copy of one": lambda world: world.hold(
        MAPS._replace(namespace="a", field_selector="metadata.name=x"), 5, OLD
    ),
    "a list": lambda world: world.keep(
        LIST, list_of(5, config_map("old", 4), config_map("as it was", 3, "y"))
    ),
    "a list of all": lambda world: world.keep(EVERYWHERE, list_of(5, config_map("old", 4))),
    "a Table of all": lambda world: world.keep(LIST, {"kind": "Table", "rows": FORMER_ROWS}, accept=TABLE),
}
"""The same object in each form in which the node may store it."""
