"""A node on the test's own disk with all parts that answer while the cloud is away, assembled like `Offline`."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from multidict import CIMultiDict

from addons.link.cloud_access import CloudAccess
from addons.link.health import Cloud, ServerHealth
from addons.link.servers import parse_server
from addons.offline.accepted.accepted_writes import AcceptedWrites
from addons.offline.cached_relay import CachedRelay
from addons.offline.cached_response import CachedResponse
from addons.offline.copies import DiskCopies
from addons.offline.copy_answers import CopyAnswers
from addons.offline.offline_answers import OfflineAnswers
from addons.offline.offline_reads import OfflineReads
from addons.offline.offline_tables import OfflineTables
from addons.offline.people.cached_discovery import Discovery
from addons.offline.writes.minimal_status_patches import MinimalStatusPatches
from addons.offline.writes.offline_creates import OfflineCreates
from addons.offline.writes.offline_writes import OfflineWrites
from addons.offline.writes.replay import Replay
from addons.offline.writes.status_writes import StatusWrites
from addons.requests.cloud_identity import HUB_IDENTITY, CloudIdentity
from addons.views.reviews import Reviews
from addons.views.sources import CloudReads, Sources
from kube.errors import StatusError
from kube.http.client import ApiResponse, Client, RawResponse, Unreachable
from kube.json_type import Json
from kube.reflector.list_watch import ListWatch
from kube.schemas.recoded import recoded
from kube.store.store import Store
from kube.wire.codec import codec_for
from kube.wire.encoded_objects import Encoded
from kube.wire.encoding import Encoding
from kube.wire.json_fields import parse_object
from tests.addons.support.offline_parts import JSON, PROTOBUF, FixedClients, QueuedAnswers, asked
from tests.addons.support.samples import raw, read_of
from tests.addons.support.unfiltered import unfiltered
from tests.kube.support.answering import AnsweringClient, Asked


class UnreachableCloud(AnsweringClient):
    """Refuse every request: the cloud is away."""

    async def answer(self, asked: Asked) -> ApiResponse:
        raise Unreachable("gone")

    def watch(self, *_args: Any, **_how: Any) -> Any:
        raise Unreachable("gone")


class OfflineWorld:
    """The node `n1`. Its sources read from `reader`, by default an unreachable cloud."""

    def __init__(self, copies: DiskCopies, reader: Client | None = None) -> None:
        self.now = 1000.0
        self.cloud = QueuedAnswers()
        """The client that answers the hub's own requests."""
        self.is_up = False
        """True if the sources consider the cloud as up."""
        self.health = ServerHealth(parse_server("http://127.0.0.1:1"))
        self.copies, access = copies, copies.access
        reader = reader or UnreachableCloud()
        self.tables = tables = OfflineTables(copies)
        reads = CloudReads(lambda _: reader, lambda: self.is_up, lambda: self.servers.up_since)
        self.sources = Sources(reads, unfiltered(), 300, copies, running=tables.running)
        self.answers, self.journal = tables.answers, tables.journal
        self.accepted = tables.accepted = AcceptedWrites(
            access, self.answers, copies, tables.running.values(), lambda: self.now
        )
        self.reads = OfflineReads(self.sources, self.answers, self.accepted, 0.5)
        self.statuses = StatusWrites("n1", self.reads, self.answers, self.journal, self.cloud)
        self.servers = Cloud([self.health], "priority")
        self.replay = Replay(
            self.journal, self.cloud, self.servers, self.statuses.reload_copies, lambda *_: None
        )
        creations = OfflineCreates(self.reads, self.answers)
        self.writes = OfflineWrites(self.statuses, creations, self.journal, self.replay)

    def relay(self, clients: FixedClients, reviews: Reviews) -> CachedRelay:
        """Build the part that relays requests while the cloud is up, and answers them otherwise."""
        discovery = Discovery(clients.hub, self.answers, self.servers)
        cloud = CloudAccess(self.servers, clients, never)
        copies = CopyAnswers(self.reads, discovery, self.servers)
        sparing = MinimalStatusPatches("n1", self.sources)
        answers = OfflineAnswers(self.tables, reviews, copies, self.writes)
        return CachedRelay("n1", cloud, answers, self.writes, sparing)

    def hold(self, list_watch: ListWatch, version: int, *objects: Json, kind: str = "") -> Store:
        """Add a running copy in the encoding of the list-watch."""
        store, encoding = self.sources.get(HUB_IDENTITY, list_watch).store, list_watch.encoding
        kind = kind or objects[0]["kind"]
        raws = [in_encoding(each, encoding).raw for each in objects]
        store.replace(codec_for(encoding), list_watch.type.api_version, kind, version, raws)
        return store

    def keep(
        self, target: str, *pages: Json, accept: str = JSON, identity: CloudIdentity = HUB_IDENTITY
    ) -> None:
        """Cache a response; a list of several pages has the tokens "1", "2" and so on."""
        headers = {"content-type": accept if accept == PROTOBUF else JSON}
        bodies = [
            in_encoding(each, Encoding.PROTOBUF).body() if accept == PROTOBUF else raw(each) for each in pages
        ]
        found, *further = (CachedResponse(headers, body) for body in bodies)
        for number, page in enumerate(further, 1):
            found = found.followed_by(str(number), page)
        self.answers.put(asked("GET", target, accept=accept).key(identity.user), found)

    async def get(
        self, target: str, accept: str = JSON, identity: CloudIdentity = HUB_IDENTITY
    ) -> Json | int | None:
        """Return the document of the response, in JSON, or the code of a refusal; None if the node has nothing."""
        self.accepted.apply_to_copies()
        try:
            answer = await self.reads.answer(
                identity, asked("GET", target, accept=accept), read_of(target, accept)
            )
        except StatusError as error:
            return error.code
        if answer is None:
            return None
        body = answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)
        return document(body, answer.headers)

    async def write(
        self, method: str, target: str, code: int, answer: Json | bytes, accept: str = JSON
    ) -> None:
        """Relay a write through the hub, up to the end of the cloud's response."""
        request = asked(method, target, accept=accept)
        await self.accepted.begin(request.info)
        body = answer if isinstance(answer, bytes) else raw(answer)
        if accept == PROTOBUF and not isinstance(answer, bytes):
            body = in_encoding(answer, Encoding.PROTOBUF).body()
        await self.accepted.accepted(
            request.info, RawResponse(code, CIMultiDict({"Content-Type": accept}), body)
        )


async def never() -> bool:
    """Return None: no server answers."""
    return False


def in_encoding(tree: Json, encoding: Encoding) -> Encoded:
    return recoded(Encoded(codec_for(Encoding.JSON), tree["apiVersion"], tree["kind"], raw(tree)), encoding)


def document(body: bytes, headers: Mapping[str, str]) -> Json:
    """Return the document of a response, in JSON."""
    fields = {name.lower(): value for name, value in headers.items()}
    body = gzip.decompress(body) if "content-encoding" in fields else body
    if fields["content-type"] == PROTOBUF:
        body = recoded(Encoded.read(codec_for(Encoding.PROTOBUF), body), Encoding.JSON).raw
    found: Json = parse_object(body)
    return found


@asynccontextmanager
async def open_world[World: OfflineWorld](made: World) -> AsyncIterator[World]:
    """Open the world with the data on its disk, and close it at the end. The disk stays open."""
    await made.answers.open()
    await made.accepted.open()
    yield made
    await made.answers.written()
    made.sources.close()
