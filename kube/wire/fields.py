"""One interface to the fields of a message in either encoding, for filters and selectors.

Names are the JSON names of the API in both encodings.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence


class Edits:
    """Whether an object was written to; all Fields of one object share it."""

    __slots__ = ("made",)

    def __init__(self) -> None:
        self.made = False


class Fields(ABC):
    """A message, or a JSON object.

    Reading never raises: a field that is null, of another type, or not in the schema reads as absent. Writing a field
    that the schema lacks is a programming error: LookupError in protobuf; JSON takes any name. Do not write to
    the Fields of a message that was removed from its parent.
    """

    __slots__ = ()

    @abstractmethod
    def text(self, name: str) -> str:
        """A string, "" when absent."""

    @abstractmethod
    def number(self, name: str) -> int:
        """An integer, 0 when absent."""

    @abstractmethod
    def flag(self, name: str) -> bool | None:
        """A boolean, None when absent."""

    @abstractmethod
    def texts(self, name: str) -> list[str]:
        """A list of strings, as a copy."""

    @abstractmethod
    def mapping(self, name: str) -> dict[str, str]:
        """A map of strings, as a copy, in the order of the wire."""

    @abstractmethod
    def child(self, name: str) -> "Fields":
        """A message. An absent one reads as empty; writing to it creates it."""

    @abstractmethod
    def children(self, name: str) -> "list[Fields]":
        """A list of messages."""

    @abstractmethod
    def count(self, name: str) -> int:
        """How many entries a list of messages has, 0 when absent. The cost is the same for each length."""

    @abstractmethod
    def has(self, name: str) -> bool:
        """Whether the field has a value. "", 0, and an empty list, map or message are no values; false is one.

        A message with any field is a value, even if the field is unknown or empty.
        """

    @abstractmethod
    def set(self, name: str, value: str | int | bool) -> None:
        """Write a string, integer or boolean; TypeError or ValueError in protobuf when it is not the field's type."""

    @abstractmethod
    def set_texts(self, name: str, values: Sequence[str]) -> None:
        """Replace a list of strings."""

    @abstractmethod
    def set_mapping(self, name: str, values: Mapping[str, str]) -> None:
        """Replace a map of strings, in this order; an empty one clears it."""

    @abstractmethod
    def keep(self, name: str, predicate: "Callable[[Fields], bool]") -> int:
        """Remove the messages of a list for which the predicate is false; return their number.

        With 0 nothing is written.
        """

    @abstractmethod
    def add(self, name: str) -> "Fields":
        """Append an empty message to a list."""

    @abstractmethod
    def clear(self, name: str) -> None:
        """Remove the field. Where there is none, nothing is written."""

    @abstractmethod
    def encode(self) -> bytes:
        """The message alone, serialised anew: the same fields, perhaps in another order."""
