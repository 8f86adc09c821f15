"""Fields of a protobuf message of the minimal schema; the runtime preserves fields outside the schema."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from google.protobuf.message import Message

from kube.wire.fields import Edits, Fields
from kube.wire.schema import MESSAGES, FieldKind, MessageType

_TEXT = FieldKind.TEXT
_SCALARS = frozenset({FieldKind.TEXT, FieldKind.NUMBER, FieldKind.FLAG})
_LISTS = frozenset({FieldKind.TEXTS, FieldKind.RAWS, FieldKind.MAPPING, FieldKind.CHILDREN})
_EMPTY_MESSAGE = MESSAGES["wire.Nothing"]


class ProtobufFields(Fields):
    """A message. A field that its schema lacks, or has with another kind, reads as absent and cannot be written."""

    __slots__ = ("_edits", "_kinds", "_message", "_type")

    def __init__(self, message_type: MessageType, message: Message, edits: Edits) -> None:
        self._type = message_type
        self._kinds = message_type.kinds
        self._message = message
        self._edits = edits

    def text(self, name: str) -> str:
        if self._kinds.get(name) is not _TEXT:
            return ""
        value = getattr(self._message, name)
        return value if isinstance(value, str) else read_text(value)

    def number(self, name: str) -> int:
        if self._kinds.get(name) is not FieldKind.NUMBER:
            return 0
        number: int = getattr(self._message, name)
        return number

    def flag(self, name: str) -> bool | None:
        if self._kinds.get(name) is not FieldKind.FLAG or not self._message.HasField(name):
            return None
        flag: bool = getattr(self._message, name)
        return flag

    def texts(self, name: str) -> list[str]:
        if self._kinds.get(name) is not FieldKind.TEXTS:
            return []
        return [read_text(value) for value in getattr(self._message, name)]

    def mapping(self, name: str) -> dict[str, str]:
        if self._kinds.get(name) is not FieldKind.MAPPING:
            return {}
        return read_entries(getattr(self._message, name))

    def child(self, name: str) -> "ProtobufFields":
        if self._kinds.get(name) is not FieldKind.CHILD:
            return ProtobufFields(_EMPTY_MESSAGE, _EMPTY_MESSAGE.new(), self._edits)
        # For an absent message the runtime returns a stub, and adds it to this message on the first write.
        return ProtobufFields(self._type.children[name], getattr(self._message, name), self._edits)

    def children(self, name: str) -> list[Fields]:
        if self._kinds.get(name) is not FieldKind.CHILDREN:
            return []
        child_type = self._type.children[name]
        return [ProtobufFields(child_type, message, self._edits) for message in getattr(self._message, name)]

    def count(self, name: str) -> int:
        return len(getattr(self._message, name)) if self._kinds.get(name) is FieldKind.CHILDREN else 0

    def has(self, name: str) -> bool:
        match self._kinds.get(name):
            case None:
                return False
            case FieldKind.FLAG:
                return self._message.HasField(name)
            case FieldKind.CHILD:
                # gogo also writes empty strings and messages, so presence alone does not mean a value.
                child: Message = getattr(self._message, name)
                return child.ByteSize() > 0
            case _:
                return bool(getattr(self._message, name))

    def set(self, name: str, value: str | int | bool) -> None:
        self._check(name, self._kinds.get(name) in _SCALARS)
        setattr(self._message, name, value)
        self._edits.made = True

    def set_texts(self, name: str, values: Sequence[str]) -> None:
        self._check(name, self._kinds.get(name) is FieldKind.TEXTS)
        getattr(self._message, name)[:] = values
        self._edits.made = True

    def set_mapping(self, name: str, values: Mapping[str, str]) -> None:
        self._check(name, self._kinds.get(name) is FieldKind.MAPPING)
        if not values:
            self.clear(name)
            return
        entries = getattr(self._message, name)
        del entries[:]
        for key, value in values.items():
            entries.add(key=key, value=value)
        self._edits.made = True

    def keep(self, name: str, predicate: Callable[[Fields], bool]) -> int:
        self._check(name, self._kinds.get(name) is FieldKind.CHILDREN)
        messages = getattr(self._message, name)
        child_type, edits = self._type.children[name], self._edits
        refused = [
            index
            for index, message in enumerate(messages)
            if not predicate(ProtobufFields(child_type, message, edits))
        ]
        for index in reversed(refused):
            del messages[index]
        if refused:
            edits.made = True
        return len(refused)

    def add(self, name: str) -> "ProtobufFields":
        self._check(name, self._kinds.get(name) is FieldKind.CHILDREN)
        added = getattr(self._message, name).add()
        self._edits.made = True
        return ProtobufFields(self._type.children[name], added, self._edits)

    def clear(self, name: str) -> None:
        self._check(name, name in self._kinds)
        is_list = self._kinds[name] in _LISTS
        if getattr(self._message, name) if is_list else self._message.HasField(name):
            self._message.ClearField(name)
            self._edits.made = True

    def encode(self) -> bytes:
        return self._message.SerializeToString()

    def _check(self, name: str, fits: bool) -> None:
        if not fits:
            kind = self._kinds.get(name)
            what = f"a {kind.value} there" if kind else "not in the schema"
            raise LookupError(f"cannot write {name} of {self._type.name}: it is {what}")


class MapEntry(Protocol):
    """A StringEntry of the schema."""

    @property
    def key(self) -> str | bytes: ...

    @property
    def value(self) -> str | bytes: ...


def read_entries(entries: Iterable[MapEntry]) -> dict[str, str]:
    """Read a map<string, string>; of entries with the same key, the last one wins."""
    return {read_text(entry.key): read_text(entry.value) for entry in entries}


def read_text(value: str | bytes) -> str:
    """Read a string; invalid UTF-8, which the runtime returns as bytes, is replaced as in kube-apiserver's JSON."""
    return value if isinstance(value, str) else value.decode(errors="replace")
