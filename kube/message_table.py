"""The protobuf messages of Kubernetes' own kinds, read from a text that `scripts/schemas` generates.

`kube/schemas/messages.txt.gz` has every message that Kubernetes publishes, `kube/wire/messages.txt` only the fields
that filters and codecs read. A line is parsed when its message is first used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import NamedTuple

META = "apimachinery.pkg.apis.meta.v1"
META_GROUP_VERSION = "meta.k8s.io/v1"

_VARINT, _FIXED_64, _DELIMITED = 0, 1, 2
_WIRE_TYPES = {"b": _VARINT, "i": _VARINT, "l": _VARINT, "d": _FIXED_64}


class FieldCardinality(Enum):
    """How often a field occurs. The value is its symbol in the file."""

    ONE = ""
    LIST = "["
    MAP = "{"


class MessageField(NamedTuple):
    """A field. `name` is its JSON name, "" if JSON inlines the fields of the message."""

    number: int
    name: str
    cardinality: FieldCardinality
    kind: str
    """b, d, i, l, s, y: bool, double, int32, int64, string, bytes; else the full name of a message."""
    is_pointer: bool
    """True if JSON shows the field whenever it is on the wire, even zero. Servers write non-pointer fields even if
    unset."""
    omit: str
    """? for omitempty, ! for omitzero."""

    @property
    def is_message(self) -> bool:
        return len(self.kind) > 1

    @property
    def hides_zero(self) -> bool:
        """True if JSON omits a zero that is on the wire. Go's omitempty does not apply to structs."""
        return self.omit == "!" or (self.omit == "?" and not self.is_pointer and not self.is_message)

    @property
    def is_always_there(self) -> bool:
        """True if JSON has the field even if it is not on the wire."""
        is_struct = self.is_message and self.cardinality is FieldCardinality.ONE and not self.is_pointer
        return not self.omit or (self.omit == "?" and is_struct)


class Message:
    """A message: its fields by wire tag, and the fields that JSON always has."""

    __slots__ = ("always", "fields", "name")

    def __init__(self, name: str, fields: tuple[MessageField, ...]) -> None:
        self.name = name
        self.fields: Mapping[int, MessageField] = {_tag(field): field for field in fields}
        self.always = tuple(field for field in fields if field.is_always_there)


def _tag(field: MessageField) -> int:
    wire_type = (
        _DELIMITED if field.cardinality is FieldCardinality.MAP else _WIRE_TYPES.get(field.kind, _DELIMITED)
    )
    return field.number << 3 | wire_type


class Messages:
    """The lines of such a text by message name, and the messages parsed so far."""

    def __init__(self, text: str) -> None:
        self._lines: dict[str, str] = {}
        self._kinds: dict[tuple[str, str], str] = {}
        self._made: dict[str, Message] = {}
        package = api_version = ""
        for line in text.splitlines():
            if line.startswith("@"):
                package, api_version = line[1:], ""
            elif line.startswith("="):
                api_version = line[1:]
            else:
                name, _, fields = line.partition("|")
                full = f"{package}.{name.rstrip('!')}"
                self._lines[full] = fields
                if name.endswith("!"):
                    self._kinds[api_version, name[:-1]] = full

    @property
    def kinds(self) -> frozenset[tuple[str, str]]:
        """apiVersion and kind of all messages."""
        return frozenset(self._kinds)

    def __iter__(self) -> Iterator[Message]:
        return map(self.message, self._lines)

    def of_kind(self, api_version: str, kind: str) -> Message | None:
        """The message of a kind; kinds that every group has, such as Status, count for any group. None for an unknown
        kind."""
        name = self._kinds.get((api_version, kind)) or self._kinds.get((META_GROUP_VERSION, kind))
        return self.message(name) if name is not None else None

    def message(self, name: str) -> Message:
        """The message with this full name; LookupError if there is none."""
        message = self._made.get(name)
        if message is None:
            package = name.rpartition(".")[0]
            fields = filter(None, self._lines[name].split("|"))
            message = self._made[name] = Message(name, tuple(_field(package, field) for field in fields))
        return message


def _field(package: str, text: str) -> MessageField:
    number, name, kind = text.split(" ")
    cardinality = FieldCardinality(kind[0]) if kind[0] in "[{" else FieldCardinality.ONE
    bare = kind.lstrip("[{").rstrip("*?!")
    omit = kind[-1] if kind[-1] in "?!" else ""
    full = bare if len(bare) == 1 or "." in bare else f"{package}.{bare}"
    return MessageField(int(number), name, cardinality, full, "*" in kind, omit)
