"""What is read from each object of a source, kept until the object is another one."""

from __future__ import annotations

from collections.abc import Callable

from kube.store.store import Change, Item, Key


class Derived[Value]:
    """Reads each object once, when somebody first asks for what is in it."""

    def __init__(self, read: Callable[[Item], Value]) -> None:
        self._read = read
        self._known: dict[Key, tuple[Item, Value]] = {}

    def of(self, item: Item) -> Value:
        """What is in an object that the source has now."""
        known = self._known.get(item.key)
        if known is None or known[0] is not item:
            known = self._known[item.key] = (item, self._read(item))
        return known[1]

    def follow(self, change: Change) -> tuple[Value, Value] | None:
        """What was in an object and what is; None where it came, went, or nobody has asked for what is in it.

        Whoever heard of the change earlier, a view of the same source, may have asked for the new object already.
        """
        known = self._known.pop(change.key, None)
        if known is None or change.old is None or change.new is None:
            return None
        before = known[1] if known[0] is change.old else self._read(change.old)
        return before, self.of(change.new)

    def clear(self) -> None:
        self._known.clear()
