"""Stores an object's labels compactly: many labels become a few texts instead of a string each."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping

MANY = 64
"""From this number on, labels are joined into texts; fewer are a dict. An object of 0.5 MB may have 20,000 labels: ten
such objects take 9 MB, as dicts they took 26 MB, and a minute of events for one of them fragmented 6 MB."""
_IS, _END = "\0", "\n"
"""Separators: characters that valid labels cannot have."""


def compact_labels(labels: Mapping[str, str]) -> Mapping[str, str]:
    """Return equal labels in the smaller representation."""
    if len(labels) < MANY:
        return labels
    texts = LabelTexts(labels)
    return texts if texts.is_lossless else labels


class LabelTexts(Mapping[str, str]):
    """Immutable sorted labels in a few texts. A lookup takes 2 µs.

    No string of the input stays referenced: it would keep the surrounding memory from being freed.
    """

    __slots__ = ("_size", "_texts")

    def __init__(self, labels: Mapping[str, str]) -> None:
        keys = sorted(labels)
        runs = [keys[begin : begin + MANY] for begin in range(0, len(keys), MANY)]
        self._size = len(keys)
        self._texts = [_END + "".join([f"{key}{_IS}{labels[key]}{_END}" for key in run]) for run in runs]

    @property
    def is_lossless(self) -> bool:
        """True if no label contains a separator."""
        ends = sum(text.count(_END) - 1 for text in self._texts)
        return ends == self._size == sum(text.count(_IS) for text in self._texts)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[str]:
        return (line.partition(_IS)[0] for text in self._texts for line in text[1:-1].split(_END))

    def __getitem__(self, key: str) -> str:
        number = bisect_right(self._texts, key, key=_first_key) - 1
        if number >= 0:
            _, is_there, rest = self._texts[number].partition(f"{_END}{key}{_IS}")
            if is_there:
                return rest.partition(_END)[0]
        raise KeyError(key)

    def __eq__(self, other: object) -> bool:
        return self._texts == other._texts if isinstance(other, LabelTexts) else super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]  # unhashable, as a dict

    def __sizeof__(self) -> int:
        """Bytes of memory, with the texts."""
        parts = self._texts, *self._texts
        return object.__sizeof__(self) + sum(part.__sizeof__() for part in parts)


def _first_key(text: str) -> str:
    return text[len(_END) : text.index(_IS)]
