"""Every field of a Node's and a Pod's metadata and status, out of the table of all messages, with how JSON shows it.

Fields of later servers are unknown to the protobuf runtime, which keeps them. `kube.wire.schema` has what filters read
of these kinds.
"""

from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cache
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from kube.schemas.message_table import Many, MessageField, messages
from kube.wire.schema import ENTRY, MANY, ONE, message_classes

KINDS = ("Node", "Pod")
TIME = "Time"
QUANTITY = "QuantityEntry"
"""An entry of map<string, Quantity>; what ENTRY is for strings."""
MAPS = frozenset({ENTRY, QUANTITY})

_SCALARS = {"s": "string", "i": "int32", "l": "int64", "b": "bool"}
_LEFT_OUT = frozenset({"spec", "managedFields"})
"""What no client writes with a status. These stay unknown."""


class Shown(Enum):
    """When JSON has a field."""

    ALWAYS = "always"
    """No `omitempty`, or a struct: JSON shows zero, and an empty time as null."""
    FILLED = "filled"
    """`omitempty`: JSON leaves zero out. Protobuf has it on the wire all the same."""
    PRESENT = "present"
    """A pointer: JSON shows a zero that is on the wire."""


class StatusField(NamedTuple):
    number: int
    kind: str
    many: bool
    shown: Shown


type StatusTable = Mapping[str, Mapping[str, StatusField]]


@cache
def status_table() -> StatusTable:
    """Message -> field (its JSON name), of all messages that a Node or a Pod leads to."""
    entries = {
        entry: {name: StatusField(number, kind, False, Shown.ALWAYS) for number, name, kind in fields}
        for entry, fields in {
            ENTRY: ((1, "key", "string"), (2, "value", "string")),
            QUANTITY: ((1, "key", "string"), (2, "value", "Quantity")),
        }.items()
    }
    return {**entries, **dict(_reached([f"api.core.v1.{kind}" for kind in KINDS]))}


def _reached(full_names: list[str]) -> Iterator[tuple[str, Mapping[str, StatusField]]]:
    seen = set(full_names)
    while full_names:
        full = full_names.pop()
        fields = [field for field in messages().message(full).fields.values() if field.name not in _LEFT_OUT]
        yield _short(full), {field.name: _status_field(field) for field in fields}
        inner = {field.kind for field in fields if field.is_message} - seen
        seen |= inner
        full_names += inner


def _status_field(field: MessageField) -> StatusField:
    if field.many is Many.MAP:
        kind = ENTRY if field.kind == "s" else QUANTITY
    else:
        kind = _short(field.kind) if field.is_message else _SCALARS[field.kind]
    unless_set = Shown.ALWAYS if field.is_always_there else Shown.FILLED
    shown = Shown.PRESENT if field.is_pointer else unless_set
    return StatusField(field.number, kind, field.many is not Many.ONE, shown)


def _short(full_name: str) -> str:
    return full_name.rpartition(".")[2]


@cache
def _classes() -> Mapping[str, Any]:
    return message_classes(
        {
            name: {
                field: (declared.number, declared.kind, MANY if declared.many else ONE)
                for field, declared in fields.items()
            }
            for name, fields in status_table().items()
        }
    )


def new_message(name: str) -> Any:
    """An empty message of the table."""
    return _classes()[name]()


def parse_message(name: str, raw: bytes) -> Any:
    """The message in `raw`; raises ValueError when it is none."""
    try:
        return _classes()[name].FromString(raw)
    except DecodeError as error:
        raise ValueError(f"not a protobuf {name}: {error}") from error
