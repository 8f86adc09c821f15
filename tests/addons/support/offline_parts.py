"""Helpers for tests of the offline parts: a journal on a real disk, parsed requests, and a scripted cloud."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from addons.offline.offline_request import OfflineRequest
from addons.offline.tables.disk_access import DiskAccess
from addons.offline.writes.journal import TABLE, Journal
from addons.requests.caller import Caller
from addons.requests.clients import Clients
from kube.disk.database import Disk
from kube.disk.writer import DiskWriter
from kube.http.client import ApiResponse, Client
from kube.json_type import Json
from kube.requests.request_info import parse_request
from kube.wire.api_objects import ApiObject, decode_object
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from tests.addons.support.samples import raw
from tests.kube.support.answering import AnsweringClient, Asked

JSON, PROTOBUF = Encoding.JSON.value, Encoding.PROTOBUF.value
STRATEGIC = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"


def asked(
    method: str, target: str, body: Json | bytes = b"", *, accept: str | None = JSON, content_type: str = JSON
) -> OfflineRequest:
    """Return a request as a client sends it."""
    headers = {"Content-Type": content_type, **({"Accept": accept} if accept is not None else {})}
    text = body if isinstance(body, bytes) else raw(body)
    return OfflineRequest.of(parse_request(method, target), target, headers, text)


def in_protobuf(api_version: str, kind: str, name: str, namespace: str = "", **more: str) -> ApiObject:
    """Return a new object; `more` are strings of its metadata."""
    obj = decode_object(Encoding.PROTOBUF, api_version, kind, b"")
    metadata = obj.fields.child("metadata")
    for field, value in {"name": name, "namespace": namespace, **more}.items():
        if value:
            metadata.set(field, value)
    return obj


def body_of(obj: ApiObject) -> bytes:
    return codec_for(obj.encoding).encode_single(obj.api_version, obj.kind, obj.encode())


def read(body: bytes, content_type: str = JSON) -> ApiObject:
    codec = codec_for(Encoding(content_type.partition(";")[0]))
    return decode_object(codec.encoding, *codec.decode_single(body))


@asynccontextmanager
async def journal_in(folder: Path, disk: Disk | None = None) -> AsyncIterator[Journal]:
    """Open a journal with the entries that an earlier one left in the folder; close it at the end."""
    access = DiskAccess(disk or Disk(folder / "cache", saved=(TABLE,)), DiskWriter())
    made = Journal(access)
    await made.open()
    if disk is None:
        await asyncio.gather(*access.loading)  # virtual time would run out before a real disk responds
    try:
        yield made
    finally:
        access.close()


class QueuedAnswers(AnsweringClient):
    """A cloud that sends the queued responses in order, and then `usual`."""

    def __init__(self, *says: Json | ApiResponse | Exception) -> None:
        super().__init__("http://cloud")
        self.says: list[Json | ApiResponse | Exception] = list(says)
        self.usual: Json | ApiResponse | Exception = {}
        self.heard: list[Asked] = []

    @property
    def lines(self) -> list[tuple[str, str]]:
        return [(each.method, each.path) for each in self.heard]

    async def answer(self, asked: Asked) -> ApiResponse:
        self.heard.append(asked)
        said: Any = self.says.pop(0) if self.says else self.usual
        if isinstance(said, Exception):
            raise said
        return said if isinstance(said, ApiResponse) else ApiResponse(JSON, raw(said))


class FixedClients(Clients):
    """Clients of a fake cloud: one for the hub's requests, one for callers' requests."""

    def __init__(self, own: Client, relaying: Client) -> None:
        self.hub, self._relaying = own, relaying

    def relaying(self, caller: Caller) -> Client:
        return self._relaying
