"""A cluster that answers informers and accepts patches at once and without a network, for a virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import orjson

from controllers.runtime.controller import Context, Controller
from controllers.runtime.informer import Informers
from controllers.runtime.write_client import EventRecorder, WriteClient
from controllers.settings import Settings
from kube.errors import forbidden, not_found
from kube.http.access_review import USER_PATH
from kube.http.client import ApiResponse, WatchStream
from kube.json_type import Json
from kube.objects.object_patches import merge_patch
from kube.requests.node_pools import NODEPOOL_TYPE
from kube.requests.request_info import ResourceType
from tests.kube.support.answering import AnsweringClient, Asked
from tests.support.background import beside


class PretendedCluster(AnsweringClient):
    """`patches` are (seconds of the loop's clock, path) of all patches, `applied` the seconds of applied ConfigMaps."""

    def __init__(self, *, node_pools: bool = True) -> None:
        super().__init__()
        self.user = "system:serviceaccount:kube-system:edgehub-manager"
        """The user in a SelfSubjectReview; "" if the cluster does not answer it."""
        self.patches: list[tuple[float, str]] = []
        self.applied: list[float] = []
        self._node_pools = node_pools
        self._version = 1
        self._objects: dict[str, dict[str, Json]] = {}
        self._watches: dict[str, list[asyncio.Queue[bytes]]] = {}
        self._collections: dict[str, str] = {}

    @property
    def patched(self) -> list[str]:
        """Return the sorted names of the patched objects, one for each patch."""
        return sorted(path.rpartition("/")[2] for _, path in self.patches)

    def put(self, resource: ResourceType, obj: Json, watched: str = "") -> None:
        """Create or replace an object. `watched` is the namespace whose objects are listed and watched, "" for all."""
        meta = obj["metadata"]
        collection, path = resource.path(watched), resource.path(meta.get("namespace", ""), meta["name"])
        known = path in self._objects.setdefault(collection, {})
        self._collections[path] = collection
        full = {"apiVersion": resource.api_version, "kind": "Thing", **obj}
        self._commit(path, "MODIFIED" if known else "ADDED", full)

    def delete(self, resource: ResourceType, name: str) -> None:
        """Delete an object of a kind without namespaces."""
        path = resource.path("", name)
        self._commit(path, "DELETED", self._objects[self._collections[path]][path])
        del self._objects[self._collections[path]][path]

    async def answer(self, asked: Asked) -> ApiResponse:
        path = asked.path
        if asked.method == "PATCH":
            answer = self._patch(path, orjson.loads(asked.body))
        elif path.startswith("/apis/apps.openyurt.io/") and path.count("/") == 3:  # discovery
            if not self._node_pools or path != f"/apis/{NODEPOOL_TYPE.api_version}":
                raise not_found(path, "")
            answer = {"kind": "APIResourceList", "resources": [{"name": NODEPOOL_TYPE.resource}]}
        elif path == USER_PATH:
            if not self.user:
                raise forbidden("selfsubjectreviews is forbidden")
            answer = {"status": {"userInfo": {"username": self.user}}}
        elif path in self._collections:
            answer = self._objects[self._collections[path]][path]
        else:
            items = list(self._objects.get(path, {}).values())
            meta = {"resourceVersion": str(self._version)}
            answer = {"apiVersion": "v1", "kind": "ThingList", "metadata": meta, "items": items}
        return ApiResponse("application/json", orjson.dumps(answer))

    @asynccontextmanager
    async def watch(
        self, path: str, *, query: Mapping[str, str], accept: str, timeout: float, codings: str = ""
    ) -> AsyncIterator[WatchStream]:
        events: asyncio.Queue[bytes] = asyncio.Queue()
        self._watches.setdefault(path, []).append(events)

        async def chunks() -> AsyncIterator[bytes]:
            while True:
                yield await events.get()

        yield WatchStream("application/json", chunks())

    def _patch(self, path: str, patch: Json) -> Json:
        """Apply a merge patch to an object or its status, or apply a ConfigMap."""
        if "data" in patch:
            self.applied.append(asyncio.get_running_loop().time())
            self._collections[path] = path.rpartition("/")[0]
            self._objects.setdefault(self._collections[path], {})
            self._commit(
                path, "MODIFIED" if path in self._objects[self._collections[path]] else "ADDED", patch
            )
            return patch
        self.patches.append((asyncio.get_running_loop().time(), path))
        path = path.removesuffix("/status")
        new = merge_patch(self._objects[self._collections[path]][path], patch)
        self._commit(path, "MODIFIED", new)
        return new

    def _commit(self, path: str, event: str, obj: Json) -> None:
        self._version += 1
        obj["metadata"]["resourceVersion"] = str(self._version)
        collection = self._collections[path]
        self._objects[collection][path] = obj
        for events in self._watches.get(collection, []):
            events.put_nowait(orjson.dumps({"type": event, "object": obj}) + b"\n")


@asynccontextmanager
async def working[C: Controller](cluster: PretendedCluster, make: Callable[[Context], C]) -> AsyncIterator[C]:
    """Run a controller; yield once its copies are complete."""
    api, informers = WriteClient(cluster, lambda: 1.0), Informers(cluster)
    controller = make(Context(api, informers, EventRecorder(api, "test"), Settings(), lambda: ""))
    async with beside(*(each.run() for each in informers)):
        # Seconds of the virtual clock, which advances while all tasks wait.
        async with asyncio.timeout(60):
            await controller.wait_for_sync()
        async with beside(controller.run()):
            yield controller
    controller.queue.close()
