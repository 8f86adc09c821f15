"""The interface of a codec, and the values that it takes and returns; `kube.wire.codec` has the codecs themselves.

Stores keep the raw form of an object, and codecs join lists and frames from raw forms. In protobuf that is the bare
message, as in the items of a list, without magic and kind; in JSON compact text with apiVersion and kind.
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
"""Bytes in one event of a watch: the limit of client-go's streaming decoder (ErrObjectTooLarge)."""
MAX_ITEMS = 500_000
"""Objects of one list. Kubernetes supports 150,000 pods in a cluster. The bound stops a list of a few hundred KB that
unpacks to a hundred million empty objects."""

EVENT_TYPES = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"})
"""The types of events. client-go ends a watch at any other."""

PIECE = 64 * 1024
"""Bytes of a list, or of a watch's initial state, that are encoded at a time, so that no client costs a whole copy."""

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""The annotation, "true", of the bookmark that ends the state in a watch with sendInitialEvents."""
HISTORY_GAP = "edgehub.io/history-gap"
"""The annotation of a bookmark that a hub sends after the events from a list: the version after which events may be
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
"""The peeks of the items of a list, None for one that was not made."""


class Rest(NamedTuple):
    """The rest behind a page of a list: the token for the next page, and how many items remain, None where unknown."""

    continue_token: str = ""
    remaining: int | None = None


NO_REST = Rest()


@dataclass(frozen=True, slots=True)
class ListPage[T: StoredText]:
    """A list, or a page of one: `kind` is that of the items, `continue_token` "" on the last page.

    `peeks` is empty where the items were not parsed.
    """

    api_version: str
    kind: str
    version: int
    continue_token: str
    remaining: int | None
    items: Sequence[T]
    peeks: Peeks = ()


class ListBody:
    """The body of a list. Its size is known before its pieces, of at most PIECE bytes and an object, are encoded."""

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
        """`write` encodes some items as they are in the body; `between` separates two such parts."""
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
    """The items in runs of at least PIECE bytes, the last of which may be shorter."""
    piece: list[T] = []
    size = 0
    for item in items:
        piece.append(item)
        size += len(item)
        if size >= PIECE:
            piece, size, full = [], 0, [piece]
            yield full.pop()  # a frame that waits for its reader caches nothing
    if piece:
        yield piece


class WatchFrame(NamedTuple):
    """One event; `status` is the error that an ERROR event carries, None in all others.

    `peek` is that of `Codec.peek`, where the reader has parsed the object anyway and could make it.
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
        """The events that this chunk completes; ValueError when they cannot be events of a watch."""
        if self._error is not None:
            raise ValueError(f"the watch was broken before: {self._error}")
        try:
            return self._read(chunk)
        except ValueError as error:
            self._error = error
            raise

    def close(self) -> None:
        """The stream has ended: ValueError when it did so within an event, or was broken before."""
        if self._error is not None:
            raise ValueError(f"the watch was broken before: {self._error}")
        left = self._left_over()
        if left:
            self._error = ValueError(f"the watch ended within an event, after {left} bytes of it")
            raise self._error

    @abstractmethod
    def _read(self, chunk: bytes) -> list[WatchFrame]:
        """Like `feed`, for a reader that has not failed."""

    @abstractmethod
    def _left_over(self) -> int:
        """Bytes of an incomplete event."""


class Codec(ABC):
    """One encoding. Each decoding method raises ValueError on malformed input, and nothing else."""

    encoding: Encoding
    content_type: str
    watch_content_type: str

    @abstractmethod
    def decode_list(self, body: bytes) -> ListPage[bytes]:
        """Split a list into its items; protobuf items are not parsed."""

    def decode_stored(self, body: bytes) -> ListPage[StoredText]:
        """Like `decode_list`, with the items packed for a store, so that a long list is never in memory unpacked."""
        return self.decode_list(body)

    @abstractmethod
    def encode_list(
        self, api_version: str, kind: str, version: int, items: Sequence[StoredText], rest: Rest = NO_REST
    ) -> ListBody:
        """A list of items of this kind, or a page of one, which `rest` follows.

        A packed item is unpacked only when its piece of the body is encoded.
        """

    def stored(self, raw: bytes) -> StoredText:
        """A raw form, packed for a store."""
        return raw

    @abstractmethod
    def decode_single(self, body: bytes) -> tuple[str, str, bytes]:
        """apiVersion, kind and raw form of the object in a body; in protobuf the first two may be empty."""

    @abstractmethod
    def encode_single(self, api_version: str, kind: str, raw: bytes) -> bytes:
        """A body that is one object."""

    @abstractmethod
    def peek(self, raw: bytes) -> ObjectPeek:
        """An object's name, version (0 when it has none; ValueError when it is malformed) and labels."""

    @abstractmethod
    def encode_event(self, event_type: str, api_version: str, kind: str, raw: bytes) -> bytes:
        """One frame of a watch."""

    @abstractmethod
    def encode_bookmark(
        self, api_version: str, kind: str, version: int, annotations: Mapping[str, str] = NO_ANNOTATIONS
    ) -> bytes:
        """A frame with the version that a watch has reached, as an object of the watched kind."""

    @abstractmethod
    def encode_error(self, error: StatusError) -> bytes:
        """A frame that ends a watch."""

    @abstractmethod
    def with_version(self, raw: bytes, version: int) -> bytes:
        """The same object with this resourceVersion."""

    @abstractmethod
    def name_alone(self, api_version: str, kind: str, key: tuple[str, str], version: int) -> bytes:
        """The raw form of an object with its namespace ("" for none), name and resourceVersion, and nothing more."""

    @abstractmethod
    def metadata_only(self, raw: bytes, version: str = "v1") -> bytes:
        """The raw form of the object's PartialObjectMetadata, in this version of meta.k8s.io."""

    @abstractmethod
    def frames(self) -> FrameReader:
        """A reader for one watch."""


def item_kind(list_kind: str) -> str:
    """The kind of a list's items; ValueError when it is no list of one kind."""
    kind = list_kind.removesuffix("List")
    if not kind or kind == list_kind:
        raise ValueError(f'"{list_kind}" is not the kind of a list')
    return kind


def write_version(version: int) -> str:
    """A resourceVersion as text: "" for 0, the number that parse_version gives an absent one."""
    return str(version) if version else ""


def read_status(status: Fields) -> StatusError:
    """The error of a Status. One without the code of an error is an internal error, as in client-go."""
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
