"""Renders a view's objects as the cloud's Tables, for kinds whose columns the hub does not know.

The view decides which objects a client sees; the cloud, with the client's own rights, renders their cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from addons.requests.answers import ClientStream
from addons.requests.object_read import ObjectRead
from kube.errors import StatusError
from kube.http.client import Client, Unreachable
from kube.json_type import Json
from kube.store.listing import Listing
from kube.store.made_forms import TableForm
from kube.tables.cloud_cells import CloudCells
from kube.tables.server_table import TABLE
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from kube.wire.json_fields import parse_object

TIMEOUT = 5.0
"""Seconds within which the cloud must render. For other objects the client gets name and age only."""

_JSON = codec_for(Encoding.JSON)


class CloudTable:
    """The cells of one list or watch: requests them from the cloud, and adds them to the objects that the client
    sees."""

    def __init__(self, client: Client, is_up: Callable[[], bool], read: ObjectRead, version: str) -> None:
        """`is_up` returns whether the cloud is reachable. `version` is the Table's API version."""
        self._client = client
        self._is_up = is_up
        self._read = read
        self._accept = f"application/json;as={TABLE[1]};v={version};g=meta.k8s.io"
        self._cells = CloudCells()
        self._form = TableForm(read.include, version, self._cells)

    async def learn(self, version: int) -> None:
        """Request the cells of all objects that the client reads, at a version or later."""
        await self._ask(version)

    def listing(self, shown: Listing) -> Listing:
        """Return the list as a Table."""
        return shown._replace(form=self._form, codec=_JSON)

    def stream(self, stream: ClientStream, api_version: str, kind: str) -> ClientStream:
        """Return a stream that receives the events of a watch as JSON, and writes Tables."""
        return _TableStream(stream, self, api_version, kind)

    async def event(self, event: Json, api_version: str, kind: str) -> bytes:
        """Encode one event; the first one includes the columns."""
        obj: Json = event["object"]
        if event["type"] == "BOOKMARK":
            metadata = obj["metadata"]
            version, annotations = int(metadata["resourceVersion"]), metadata.get("annotations") or {}
            return self._form.bookmark(_JSON, api_version, kind, version, annotations)
        if event["type"] != "DELETED" and self._cells.columns and not self._cells.has(obj):
            metadata = obj["metadata"]
            await self._ask(int(metadata["resourceVersion"]), metadata.get("namespace", ""), metadata["name"])
        made = _JSON.encode_event(event["type"], *TABLE, self._form.event_of(obj, api_version, kind))
        if event["type"] == "DELETED":
            self._cells.forget(obj)
        return made

    def headed(self, first: bytes, api_version: str, kind: str) -> bytes:
        return self._form.headed(first, api_version, kind)

    async def _ask(self, version: int, namespace: str = "", name: str = "") -> None:
        """Learn the cells of all objects that the client reads, or of one, not older than a version."""
        if not self._is_up():
            return
        read = self._read
        fields = f"metadata.name={name}" if name else read.fields.canonical
        options = {
            "labelSelector": "" if name else read.labels.canonical,
            "fieldSelector": fields,
            "resourceVersion": str(version),
            "includeObject": "Metadata",
        }
        query = {option: text for option, text in options.items() if text}
        path = read.type.path(namespace or read.namespace)
        try:
            answer = await self._client.request(
                "GET", path, query=query, accept=self._accept, timeout=TIMEOUT
            )
            await answer.decoded(self._cells.learn)
        except (StatusError, Unreachable, ValueError):
            return  # name and age are better than nothing


class _TableStream(ClientStream):
    """Writes each event of a watch as a Table, by `write` only: people read Tables, so speed does not matter."""

    try_write = None

    def __init__(self, stream: ClientStream, table: CloudTable, api_version: str, kind: str) -> None:
        self._stream = stream
        self._table = table
        self._type = api_version, kind
        self._rest = b""
        self._is_first = True

    async def begin(self, headers: Mapping[str, str]) -> None:
        await self._stream.begin(headers)

    async def write(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            event = parse_object(line)
            if event["type"] == "ERROR":
                await self._stream.write(line + b"\n")
                continue
            made = await self._table.event(event, *self._type)
            if self._is_first:
                made, self._is_first = self._table.headed(made, *self._type), False
            await self._stream.write(made)

    async def write_all(self, pieces: Iterable[bytes]) -> None:
        for piece in pieces:
            await self.write(piece)
