"""Scopes: the objects of a source that a client requests. An index finds the scopes that an object may match."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from kube.requests.label_requirements import Operator
from kube.requests.selectors import FieldSelector, LabelSelector
from kube.store.store import Item, Key

type Anchor = tuple[str, str, str]
"""A condition that each object of a scope fulfils: namespace ("" for any), label key ("" for the name) and value."""


class Scope(NamedTuple):
    """A namespace ("" for all) and selectors."""

    namespace: str
    labels: LabelSelector
    fields: FieldSelector

    @property
    def is_everything(self) -> bool:
        return not self.namespace and self.labels.is_everything and self.fields.is_everything

    def matches(self, item: Item) -> bool:
        if self.namespace and item.key[0] != self.namespace:
            return False
        return self.labels.matches(item.labels) and self.fields.matches(item.field)

    def may_have_held(self, item: Item) -> bool:
        """True if the object may have matched at another time, by its namespace and name, which never change."""
        names = (self.namespace, item.key[0]), (self.fields.exact("metadata.namespace"), item.key[0])
        exact = self.fields.exact("metadata.name")
        return all(not wanted or wanted == name for wanted, name in (*names, (exact, item.key[1])))

    @property
    def anchors(self) -> tuple[Anchor, ...]:
        """The anchors of a scope: every object in it fulfils one. A name or a label is more selective than a
        namespace."""
        namespace = self.namespace or self.fields.exact("metadata.namespace") or ""
        if name := self.fields.exact("metadata.name"):
            return ((namespace, "", name),)
        for requirement in self.labels.requirements:
            if requirement.operator is Operator.IN:
                return tuple((namespace, requirement.key, value) for value in requirement.values)
        return ((namespace, "", ""),)


EVERYTHING = Scope("", LabelSelector(), FieldSelector())

_ANYTHING: Anchor = ("", "", "")


class ScopeIndex[T]:
    """Finds listeners by scope: an event costs only those that it may concern, however many there are."""

    def __init__(self) -> None:
        self._scopes: dict[T, Scope] = {}
        self._unanchored: dict[T, None] = {}
        self._anchored: dict[Anchor, dict[T, None]] = {}
        self._keys: Counter[str] = Counter()
        """The number of anchors for each label key: an object may have a hundred thousand labels with other keys."""

    def __iter__(self) -> Iterator[T]:
        return iter(list(self._scopes))

    def __len__(self) -> int:
        return len(self._scopes)

    def add(self, listener: T, scope: Scope) -> None:
        self._scopes[listener] = scope
        for anchor in scope.anchors:
            self._at(anchor)[listener] = None
            if anchor[1]:
                self._keys[anchor[1]] += 1

    def remove(self, listener: T) -> None:
        for anchor in self._scopes.pop(listener).anchors:
            listeners = self._at(anchor)
            del listeners[listener]
            if key := anchor[1]:
                self._keys[key] -= 1
                if not self._keys[key]:
                    del self._keys[key]
            if not listeners:
                self._anchored.pop(anchor, None)

    def concerned(self, key: Key, items: Iterable[Item | None]) -> Collection[T]:
        """The listeners whose scope may match one of an object's states, each once. Not all of these scopes need
        match."""
        if not self._anchored:
            return self._unanchored
        scopes = dict(self._unanchored)
        for anchor in self._anchors_of(key, items):
            scopes |= self._anchored.get(anchor, {})
        return scopes

    def _at(self, anchor: Anchor) -> dict[T, None]:
        return self._unanchored if anchor == _ANYTHING else self._anchored.setdefault(anchor, {})

    def _anchors_of(self, key: Key, items: Iterable[Item | None]) -> Iterator[Anchor]:
        namespace, name = key
        states = [item.labels for item in items if item is not None]
        labels = sorted(
            {
                (key, state[key])
                for state in states
                for key in min(self._keys, state, key=len)
                if key in self._keys and key in state
            }
        )
        for where in dict.fromkeys(("", namespace)):
            yield where, "", ""
            yield where, "", name
            for label in labels:
                yield where, *label
