"""One interface to the fields of a message in either encoding, for filters and selectors.

Names are the JSON names of the API in both encodings.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence


class Edits:
    """Records whether an object was written to; all Fields of one object share it."""

    __slots__ = ("made",)

    def __init__(self) -> None:
        self.made = False


class Fields(ABC):
    """A message, or a JSON object.

    Reading never raises: a field that is null, of another type, or not in the schema reads as absent. Writing a field
    that the schema lacks is a programming error: LookupError in protobuf; JSON accepts any name. Never write to the
    Fields of a message that was removed from its parent.
    """

    __slots__ = ()

    @abstractmethod
    def text(self, name: str) -> str:
        """Read a string, "" if absent."""

    @abstractmethod
    def number(self, name: str) -> int:
        """Read an integer, 0 if absent."""

    @abstractmethod
    def flag(self, name: str) -> bool | None:
        """Read a boolean, None if absent."""

    @abstractmethod
    def texts(self, name: str) -> list[str]:
        """Read a list of strings, as a copy."""

    @abstractmethod
    def mapping(self, name: str) -> dict[str, str]:
        """Read a map of strings, as a copy, in wire order."""

    @abstractmethod
    def child(self, name: str) -> "Fields":
        """Return a message. An absent one reads as empty; writing to it creates it."""

    @abstractmethod
    def children(self, name: str) -> "list[Fields]":
        """Return a list of messages."""

    @abstractmethod
    def count(self, name: str) -> int:
        """The number of entries in a list of messages, 0 if absent. Takes constant time."""

    @abstractmethod
    def has(self, name: str) -> bool:
        """True if the field has a value. "", 0, and an empty list, map or message do not count; false does.

        A message with any field counts, even if the field is unknown or empty.
        """

    @abstractmethod
    def set(self, name: str, value: str | int | bool) -> None:
        """Write a string, integer or boolean. In protobuf, TypeError or ValueError if the type is wrong."""

    @abstractmethod
    def set_texts(self, name: str, values: Sequence[str]) -> None:
        """Replace a list of strings."""

    @abstractmethod
    def set_mapping(self, name: str, values: Mapping[str, str]) -> None:
        """Replace a map of strings, in this order; an empty map clears it."""

    @abstractmethod
    def keep(self, name: str, predicate: "Callable[[Fields], bool]") -> int:
        """Remove the messages of a list for which the predicate is false; return how many.

        If none is removed, nothing is written.
        """

    @abstractmethod
    def add(self, name: str) -> "Fields":
        """Append an empty message to a list, and return it."""

    @abstractmethod
    def clear(self, name: str) -> None:
        """Remove the field. An absent field is not written."""

    @abstractmethod
    def encode(self) -> bytes:
        """Serialize the message anew: the same fields, possibly in another order."""
