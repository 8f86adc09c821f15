"""A node's copies of ConfigMaps, and writes of ConfigMaps that pass the hub."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from multidict import CIMultiDict, CIMultiDictProxy

from addons.offline.accepted.accepted_writes import AcceptedWrites
from addons.offline.cached_responses import CachedResponses
from addons.offline.copies import DiskCopies
from addons.offline.offline_reads import OfflineReads
from addons.offline.tables.disk_access import DiskAccess
from addons.requests.cloud_identity import HUB_IDENTITY, CloudIdentity
from addons.rules.table import parse_rules
from addons.views.sources import Sources
from kube.disk.database import Disk
from kube.disk.writer import DiskWriter
from kube.errors import StatusError
from kube.http.client import RawResponse, Unreachable
from kube.json_type import Json
from kube.reflector.list_watch import ListWatch
from kube.requests.request_info import ResourceType
from kube.schemas.recoded import recoded
from kube.store.store import Store
from kube.wire.codec import codec_for
from kube.wire.encoded_objects import Encoded
from kube.wire.encoding import Encoding
from kube.wire.json_fields import parse_object
from tests.addons.support.offline_parts import JSON, PROTOBUF, Told, asked
from tests.addons.support.samples import raw, read_of

TYPE = ResourceType("", "v1", "configmaps")
MAPS = ListWatch(TYPE)
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


def in_encoding(tree: Json, encoding: Encoding) -> Encoded:
    obj = Encoded(codec_for(Encoding.JSON), tree["apiVersion"], tree["kind"], raw(tree))
    return recoded(obj, encoding)


def list_of(version: int, *items: Json) -> Json:
    return {
        "kind": "ConfigMapList",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": str(version)},
        "items": [*items],
    }


class World:
    """A node's copies of ConfigMaps. The cloud is unreachable for readers."""

    def __init__(self, copies: DiskCopies) -> None:
        self.now = 1000.0
        self.copies = copies
        self.answers = CachedResponses(copies.access)
        self.accepted = AcceptedWrites(copies.access, self.answers, copies, lambda: self.now)
        gone = Told(Unreachable("gone"))
        self.sources = Sources(
            lambda _: gone, lambda *_: None, lambda: parse_rules(None), 300, copies, is_up=lambda: False
        )
        self.accepted.start(self.sources)
        self.reads = OfflineReads(self.sources, self.answers, self.accepted, 1)

    async def open(self) -> None:
        await self.answers.open()
        await self.accepted.open()
        await asyncio.gather(*self.copies.access.loading)

    def keep(
        self, target: str, tree: Json, accept: str = JSON, identity: CloudIdentity = HUB_IDENTITY
    ) -> None:
        body = raw(tree)
        if accept == PROTOBUF:
            body = in_encoding(tree, Encoding.PROTOBUF).body()
        key = asked("GET", target, accept=accept).key(identity.user)
        self.answers.keep(key, {"content-type": JSON if accept == TABLE else accept}, body)

    def keep_in_both(self, target: str, tree: Json) -> None:
        for accept in (JSON, PROTOBUF):
            self.keep(target, tree, accept)

    def hold(self, encoding: Encoding, *trees: Json, version: int = 5, of: ListWatch = MAPS) -> Store:
        list_watch = of._replace(encoding=encoding)
        store = self.sources.get(HUB_IDENTITY, list_watch).store
        raws = [in_encoding(tree, encoding).raw for tree in trees]
        store.replace(codec_for(encoding), "v1", "ConfigMap", version, raws)
        return store

    async def write(
        self, method: str, target: str, code: int, answer: Json | bytes, accept: str = JSON
    ) -> None:
        """A write through the hub, to the end of its answer."""
        request = asked(method, target, accept=accept)
        await self.accepted.begin(request.info)
        await self.accepted.accepted(request.info, response(code, answer, accept))

    async def get(
        self, target: str = PATH, accept: str = JSON, identity: CloudIdentity = HUB_IDENTITY
    ) -> Json | int | None:
        """The document of the answer, in JSON, or the code of a refusal; None where the node has nothing."""
        self.accepted.lay()
        try:
            request, read = asked("GET", target, accept=accept), read_of(target, accept)
            answer = await self.reads.answer(identity, request, read)
        except StatusError as error:
            return error.code
        if answer is None:
            return None
        body = answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)
        if accept == PROTOBUF:
            assert (
                answer.headers["Content-Type" if "Content-Type" in answer.headers else "content-type"]
                == PROTOBUF
            )
            body = recoded(Encoded.read(codec_for(Encoding.PROTOBUF), body), Encoding.JSON).raw
        found: Json = parse_object(body)
        return found

    async def value(self, **how: object) -> object:
        found = await self.get(**how)  # type: ignore[arg-type]  # as of `get`
        return found["data"]["value"] if isinstance(found, dict) else found

    async def values(self, target: str = LIST) -> dict[str, str] | int | None:
        found = await self.get(target)
        if not isinstance(found, dict):
            return found
        return {item["metadata"]["name"]: item["data"]["value"] for item in found["items"]}


def response(code: int, answer: Json | bytes, accept: str = JSON) -> RawResponse:
    body = answer if isinstance(answer, bytes) else raw(answer)
    if accept == PROTOBUF and not isinstance(answer, bytes):
        body = in_encoding(answer, Encoding.PROTOBUF).body()
    return RawResponse(code, CIMultiDictProxy(CIMultiDict({"Content-Type": accept})), body)


@asynccontextmanager
async def world_in(folder: Path) -> AsyncIterator[World]:
    copies = DiskCopies(DiskAccess(Disk(folder / "cache"), DiskWriter()))
    await copies.open()
    made = World(copies)
    await made.open()
    yield made
    made.sources.close()
    copies.access.close()


KEPT: dict[str, Callable[[World], object]] = {
    "JSON": lambda world: world.keep(PATH, config_map("old", 4)),
    "protobuf": lambda world: world.keep(PATH, config_map("old", 4), PROTOBUF),
    "both": lambda world: world.keep_in_both(PATH, config_map("old", 4)),
    "another's": lambda world: world.keep(PATH, config_map("old", 4), JSON, OTHER),
    "a copy": lambda world: world.hold(Encoding.JSON, config_map("old", 4)),
    "a copy in protobuf": lambda world: world.hold(Encoding.PROTOBUF, config_map("old", 4)),
    "a copy of one": lambda world: world.hold(
        Encoding.JSON, config_map("old", 4), of=MAPS._replace(namespace="a", field_selector="metadata.name=x")
    ),
    "a list": lambda world: world.keep(
        LIST, list_of(5, config_map("old", 4), config_map("as it was", 3, "y"))
    ),
    "a list of all": lambda world: world.keep(EVERYWHERE, list_of(5, config_map("old", 4))),
    "a Table of all": lambda world: world.keep(LIST, {"kind": "Table", "rows": FORMER_ROWS}, TABLE),
}
"""The same object as the node may keep it."""
