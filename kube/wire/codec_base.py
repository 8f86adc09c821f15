"""The interface of a codec, with the values that it takes and returns; `kube.wire.codec` has the codecs themselves.

Stores keep the raw form of an object, from which codecs build lists and frames. In protobuf, the raw form is the bare
message, as in the items of a list, without magic and kind; in JSON it is compact text with apiVersion and kind.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from kube.errors import StatusError
from kube.packed_text import StoredText
from kube.wire.encoding import Encoding
from kube.wire.fields import Fields

MAX_FRAME = 16 * 1024 * 1024
"""The most bytes in one watch event: the limit of client-go's streaming decoder (ErrObjectTooLarge)."""
MAX_ITEMS = 500_000
"""The most objects of one list. Kubernetes supports 150,000 pods in a cluster. The bound stops a list of a few hundred
KB that decompresses to a hundred million empty objects."""

EVENT_TYPES = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"})
"""The types of watch events. client-go ends a watch at any other."""

CHUNK = 64 * 1024
"""Bytes of a list, or of a watch's initial state, that are encoded at a time, so that no client needs a full copy in
memory."""

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""The annotation, "true", of the bookmark that ends the initial state in a watch with sendInitialEvents."""
HISTORY_GAP = "edgehub.io/history-gap"
"""The annotation of a bookmark that a hub sends after a list left a gap: the version after which events may be
missing."""
NO_ANNOTATIONS: Mapping[str, str] = MappingProxyType({})
INITIAL_EVENTS_ENDED: Mapping[str, str] = MappingProxyType({INITIAL_EVENTS_END: "true"})

META_GROUP = "meta.k8s.io"


class ObjectPeek(NamedTuple):
    """The metadata of an object that a store needs."""

    namespace: str
    name: str
    version: int
    labels: dict[str, str]


type Peeks = Sequence[ObjectPeek | None]
"""The peeks of the items of a list; None for an item without one."""


class ListMeta(NamedTuple):
    """The metadata of a list, or of a page of one: the token is that of the next page, "" on the last."""

    version: int
    continue_token: str = ""
    remaining: int | None = None
    """The number of remaining items; None if unknown."""


@dataclass(frozen=True, slots=True)
class ListPage[T: StoredText]:
    """A list, or a page of one: `kind` is that of the items, `continue_token` is "" on the last page.

    `peeks` is empty if the items were not parsed.
    """

    api_version: str
    kind: str
    version: int
    continue_token: str
    remaining: int | None
    items: Sequence[T]
    peeks: Peeks = ()


class ListBody:
    """The body of a list. Its size is known before its pieces are encoded. A piece has at most CHUNK bytes and one
    object."""

    __slots__ = ("_between", "_head", "_items", "_tail", "_write", "size")

    def __init__(
        self,
        head: bytes,
        items: Sequence[StoredText],
        tail: bytes,
        size: int,
        write: Callable[[Sequence[bytes]], bytes],
        between: bytes = b"",
    ) -> None:
        """Set `write`, which encodes items as in the body, and `between`, the separator of two such parts."""
        self.size = size
        self._head = head
        self._items = items
        self._tail = tail
        self._write = write
        self._between = between

    def __iter__(self) -> Iterator[bytes]:
        parts = list(in_pieces(self._items)) or [[]]
        for number, part in enumerate(parts):
            before = self._between if number else self._head
            after = b"" if number < len(parts) - 1 else self._tail
            yield b"".join((before, self._write([bytes(raw) for raw in part]), after))

    def __bytes__(self) -> bytes:
        return b"".join(self)


def in_pieces[T: Sized](items: Iterable[T]) -> Iterator[list[T]]:
    """Group items into runs of at least CHUNK bytes; only the last run may be shorter."""
    piece: list[T] = []
    size = 0
    for item in items:
        piece.append(item)
        size += len(item)
        if size >= CHUNK:
            piece, size, full = [], 0, [piece]
            yield full.pop()  # a suspended generator must not hold the items
    if piece:
        yield piece


class WatchFrame(NamedTuple):
    """One event. `status` is the error in an ERROR event, None in all others.

    `peek` is as from `Codec.peek`, if the reader had to parse the object anyway.
    """

    type: str
    api_version: str
    kind: str
    raw: bytes
    status: StatusError | None = None
    peek: ObjectPeek | None = None


class FrameReader(ABC):
    """Splits the bytes of a watch, in chunks of any size, into events. After an error every call fails."""

    def __init__(self) -> None:
        self._error: ValueError | None = None

    def feed(self, chunk: bytes) -> list[WatchFrame]:
        """Return the events that this chunk completes; ValueError if they are no watch events."""
        if self._error is not None:
            raise ValueError(f"the watch was broken before: {self._error}")
        try:
            return self._read(chunk)
        except ValueError as error:
            self._error = error
            raise

    def close(self) -> None:
        """End the stream: ValueError if it ends within an event, or failed before."""
        if self._error is not None:
            raise ValueError(f"the watch was broken before: {self._error}")
        left = self._left_over()
        if left:
            self._error = ValueError(f"the watch ended within an event, after {left} bytes of it")
            raise self._error

    @abstractmethod
    def _read(self, chunk: bytes) -> list[WatchFrame]:
        """Return events as `feed` does, for a reader that has not failed."""

    @abstractmethod
    def _left_over(self) -> int:
        """The number of bytes of an incomplete event."""


class Codec(ABC):
    """One encoding. Each decoding method raises only ValueError, for malformed input."""

    encoding: Encoding
    content_type: str
    watch_content_type: str

    @abstractmethod
    def decode_list(self, body: bytes) -> ListPage[bytes]:
        """Split a list into its items; protobuf items are not parsed."""

    def decode_stored(self, body: bytes) -> ListPage[StoredText]:
        """Split as `decode_list` does, with the items compressed for a store, so that a long list is never in memory
        uncompressed."""
        return self.decode_list(body)

    @abstractmethod
    def encode_list(
        self, api_version: str, kind: str, meta: ListMeta, items: Sequence[StoredText]
    ) -> ListBody:
        """Encode a list of items of this kind, or a page of one.

        A compressed item is decompressed only when its piece of the body is encoded.
        """

    def stored(self, raw: bytes) -> StoredText:
        """Compress a raw form for a store."""
        return raw

    @abstractmethod
    def decode_single(self, body: bytes) -> tuple[str, str, bytes]:
        """Decode the object in a body to apiVersion, kind and raw form. In protobuf, apiVersion and kind may be
        empty."""

    @abstractmethod
    def encode_single(self, api_version: str, kind: str, raw: bytes) -> bytes:
        """Encode a body with one object."""

    @abstractmethod
    def peek(self, raw: bytes) -> ObjectPeek:
        """Parse an object's name, version (0 if absent; ValueError if malformed) and labels."""

    @abstractmethod
    def encode_event(self, event_type: str, api_version: str, kind: str, raw: bytes) -> bytes:
        """Encode one watch event."""

    @abstractmethod
    def encode_bookmark(
        self, api_version: str, kind: str, version: int, annotations: Mapping[str, str] = NO_ANNOTATIONS
    ) -> bytes:
        """Encode a bookmark with the version that a watch has reached, as an object of the watched kind."""

    @abstractmethod
    def encode_error(self, error: StatusError) -> bytes:
        """Encode an ERROR event, which ends a watch."""

    @abstractmethod
    def with_version(self, raw: bytes, version: int) -> bytes:
        """Return the same object with this resourceVersion."""

    @abstractmethod
    def name_alone(self, api_version: str, kind: str, key: tuple[str, str], version: int) -> bytes:
        """Encode an object with only its namespace ("" for none), name and resourceVersion."""

    @abstractmethod
    def metadata_only(self, raw: bytes, version: str = "v1") -> bytes:
        """Encode an object's PartialObjectMetadata, in this version of meta.k8s.io."""

    @abstractmethod
    def frames(self) -> FrameReader:
        """Make a reader for one watch."""


def item_kind(list_kind: str) -> str:
    """The kind of a list's items; ValueError if it is not a list of one kind."""
    kind = list_kind.removesuffix("List")
    if not kind or kind == list_kind:
        raise ValueError(f'"{list_kind}" is not the kind of a list')
    return kind


def write_version(version: int) -> str:
    """A resourceVersion as text: "" for 0, which parse_version returns for an absent one."""
    return str(version) if version else ""


def read_status(status: Fields) -> StatusError:
    """Convert a Status to an error. A Status without an error code becomes an internal error, as in client-go."""
    details = status.child("details")
    fields: dict[str, Any] = {name: details.text(name) for name in ("name", "group", "kind", "uid")}
    fields["causes"] = [_read_cause(cause) for cause in details.children("causes")]
    fields["retryAfterSeconds"] = details.number("retryAfterSeconds")
    code = status.number("code")
    return StatusError(
        code if 400 <= code <= 599 else 500,
        status.text("reason"),
        status.text("message"),
        {name: value for name, value in fields.items() if value},
        fields["retryAfterSeconds"] or None,
    )


def _read_cause(cause: Fields) -> dict[str, str]:
    texts = {name: cause.text(name) for name in ("reason", "message", "field")}
    return {name: text for name, text in texts.items() if text}
