"""The minimal protobuf schema: only the fields that filters, selectors and codecs read or write.

`scripts/schemas` extracts it from Kubernetes' published schema, by the names in `scripts/building/minimal_schema.py`.
The protobuf runtime preserves all other fields of a message as unknown fields, so nothing is lost.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from kube.message_table import META, META_GROUP_VERSION, FieldCardinality, Message, MessageField, Messages

_SCALARS = {
    "s": FieldDescriptorProto.TYPE_STRING,
    "i": FieldDescriptorProto.TYPE_INT32,
    "l": FieldDescriptorProto.TYPE_INT64,
    "b": FieldDescriptorProto.TYPE_BOOL,
    "y": FieldDescriptorProto.TYPE_BYTES,
}


class FieldKind(Enum):
    """The type of a field, by the methods of Fields."""

    TEXT = "text"
    NUMBER = "number"
    FLAG = "flag"
    RAW = "raw"
    TEXTS = "texts"
    RAWS = "raws"
    MAPPING = "mapping"
    CHILD = "child"
    CHILDREN = "children"


class MessageType:
    """A message of the schema: its fields' kinds, the types of its child messages, and its generated class.

    A bool that is not a pointer in the Go type is always on the wire, but JSON omits a false one: readers of such a
    field treat None and False alike.
    """

    __slots__ = ("_class", "children", "kinds", "name")

    def __init__(self, message: Message, message_class: Any) -> None:
        self.name = message.name
        self.kinds: Mapping[str, FieldKind] = {
            field.name: _field_kind(field) for field in message.fields.values()
        }
        self.children: Mapping[str, MessageType] = {}
        self._class = message_class

    def new(self, **fields: object) -> Any:
        """Make a message with these fields; message fields are given as dicts."""
        return self._class(**fields)

    def parse(self, raw: bytes | memoryview) -> Any:
        """Parse a message; ValueError if it is malformed."""
        try:
            return self._class.FromString(raw)
        except DecodeError as error:
            raise ValueError(f"not a protobuf {self.name}: {error}") from error


def _field_kind(field: MessageField) -> FieldKind:
    if field.cardinality is FieldCardinality.MAP:
        return FieldKind.MAPPING
    many = field.cardinality is FieldCardinality.LIST
    match field.kind:
        case "s":
            return FieldKind.TEXTS if many else FieldKind.TEXT
        case "y":
            return FieldKind.RAWS if many else FieldKind.RAW
        case "b":
            return FieldKind.FLAG
        case "i" | "l":
            return FieldKind.NUMBER
        case _:
            return FieldKind.CHILDREN if many else FieldKind.CHILD


def message_classes(messages: Iterable[Message]) -> Mapping[str, Any]:
    """Generate a class for each message, by full name. All messages in their fields must be included."""
    # proto2 tracks presence, and accepts text that is not UTF-8.
    file = FileDescriptorProto(name="edgehub/kube.proto", package="edgehub", syntax="proto2")
    names: dict[str, str] = {}
    entries: set[str] = set()
    for message in messages:
        names[message.name] = _identifier(message.name)
        declared = file.message_type.add(name=names[message.name])
        for field in message.fields.values():
            _declare(declared, field)
            if field.cardinality is FieldCardinality.MAP:
                entries.add(field.kind)
    for kind in entries:
        entry = file.message_type.add(name=_entry(kind))
        for number, name, inner in ((1, "key", "s"), (2, "value", kind)):
            _declare(
                entry, MessageField(number, name, FieldCardinality.ONE, inner, is_pointer=False, omit="")
            )
    pool = DescriptorPool()  # a private one: other packages' names cannot clash with ours
    pool.AddSerializedFile(file.SerializeToString())
    return {
        name: GetMessageClass(pool.FindMessageTypeByName(f"edgehub.{own}")) for name, own in names.items()
    }


def _declare(message: DescriptorProto, field: MessageField) -> None:
    is_one = field.cardinality is FieldCardinality.ONE
    type_name = None
    if field.cardinality is FieldCardinality.MAP:
        # A map is declared as repeated entries, as on the wire: the runtime's own maps lose the order and an entry's
        # unknown fields.
        type_name = f".edgehub.{_entry(field.kind)}"
    elif field.is_message:
        type_name = f".edgehub.{_identifier(field.kind)}"
    message.field.add(
        name=field.name,
        number=field.number,
        label=FieldDescriptorProto.LABEL_OPTIONAL if is_one else FieldDescriptorProto.LABEL_REPEATED,
        type=_SCALARS[field.kind] if type_name is None else FieldDescriptorProto.TYPE_MESSAGE,
        type_name=type_name,
    )


def _entry(kind: str) -> str:
    return f"{_identifier(kind)}_entry"


def _identifier(name: str) -> str:
    return name.replace(".", "_")


def _load() -> tuple[Mapping[str, MessageType], Mapping[tuple[str, str], MessageType]]:
    """The types by full name and, for types with more than metadata, by apiVersion and kind."""
    table = Messages(Path(__file__).with_name("messages.txt").read_text())
    classes = message_classes(table)
    types = {message.name: MessageType(message, classes[message.name]) for message in table}
    for message in table:
        types[message.name].children = {
            field.name: types[field.kind]
            for field in message.fields.values()
            if field.is_message and field.cardinality is not FieldCardinality.MAP
        }
    kinds = {
        ("v1" if api_version == META_GROUP_VERSION else api_version, kind): types[known.name]
        for api_version, kind in table.kinds
        if (known := table.of_kind(api_version, kind)) is not None
    }
    return MappingProxyType(types), MappingProxyType(kinds)


MESSAGES, KINDS = _load()
METADATA = MESSAGES[f"{META}.PartialObjectMetadata"]


def message_type_of(api_version: str, kind: str) -> MessageType:
    """The message type of a kind. For a kind without a schema, a type with only metadata, which is field 1 of all
    kinds."""
    return KINDS.get((api_version, kind), METADATA)
