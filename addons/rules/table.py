"""The rules: the filters that apply to requests, and the components whose reads are cached.

Parsed from the data of the ConfigMap `kube-system/yurt-hub-cfg`, in both formats in use: keys `filter_<name>`
(YurtHub's first format) and `<name>` (its newer one). Its entries are added to the built-in bindings.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from addons.filters.chain import FILTERS
from addons.filters.filter import Filter
from addons.rules.entries import (
    ANY,
    FILTER_PREFIX,
    RuleEntry,
    built_in,
    near_name,
    parse_component,
    parse_entry,
    parse_lease,
    split_entries,
    takes_away,
)
from addons.rules.filter_bindings import Bindings
from addons.rules.shared_kinds import parse_kind
from addons.telemetry.labels import HUB
from kube.requests.request_info import ResourceType

CACHE_AGENTS = "cache_agents"
OFFLINE_LEASES = "offline_leases"
POOL_RESOURCES = "pool_resources"
NON_FILTER_KEYS = (CACHE_AGENTS, OFFLINE_LEASES, POOL_RESOURCES)
"""The keys that name no filter."""

BASE_AGENTS = frozenset(
    {"kubelet", "kube-proxy", "flanneld", "coredns", "raven-agent-ds", "yurttunnel-agent", "yurthub", HUB}
)
"""The components that are cached without any ConfigMap, as in YurtHub."""
BASE_AGENT_PREFIX = "multiplexer-proxy-"
"""The prefix of the component name of another node's YurtHub that reads shared resources; the node's name follows."""

OFF_IN_CLOUD_MODE = frozenset(
    {"discardcloudservice", "forwardkubesvctraffic", "serviceenvupdater", "localendpoint"}
)
"""Filters that can only do harm on a node in the cloud: YurtHub's three, and the local rewrite, which SuperEdge omits
on masters."""

MAX_VALUE_BYTES = 256 * 1024
"""Bytes of the value of one key: a quarter of a ConfigMap's limit (1 MiB)."""
MAX_ENTRIES = 10_000
"""Entries of the ConfigMap: far more than any real one has, parsed within a few tens of milliseconds."""
MAX_LEASES = 64
"""Leases that pods may renew at the hub: each is in memory."""
MAX_RESOURCES = 32
"""The most resources that pools share in addition to the three standard ones: a leader keeps all objects of each."""
MAX_PROBLEMS = 100
"""Problems of one ConfigMap that logs, Events and the debug page name; the others are only counted."""
MAX_SHOWN = 128
"""Characters of a bad entry that logs and Events repeat."""


class Problem(NamedTuple):
    """A skipped part of the ConfigMap: its key, its text (cut to MAX_SHOWN) and the reason, for users."""

    key: str
    text: str
    why: str


class Problems(NamedTuple):
    """All skipped parts: the first MAX_PROBLEMS of them, and how many more there are."""

    named: tuple[Problem, ...]
    unnamed: int

    @property
    def total(self) -> int:
        return len(self.named) + self.unnamed


@dataclass(frozen=True, slots=True)
class Agents:
    """The components that `cache_agents` adds to the base and excludes from it; either may contain `*`."""

    added: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()

    def __contains__(self, component: str) -> bool:
        if component == HUB:
            return True
        if not self.removed.isdisjoint((ANY, component)):
            return False
        based = component in BASE_AGENTS or component.startswith(BASE_AGENT_PREFIX)
        return based or not self.added.isdisjoint((ANY, component))


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules in force. Rules with the same digest give the same answers; only the places where they were written may
    differ."""

    bindings: Bindings
    agents: Agents
    leases: frozenset[tuple[str, str]]
    """The Leases that their holders renew at the hub while the cloud is away, by namespace and name."""
    pool_resources: tuple[ResourceType, ...]
    """The resources that pools share besides Services, Endpoints and EndpointSlices."""
    problems: Problems
    digest: str

    @property
    def components(self) -> frozenset[str]:
        """The components that a rule names, built-in ones too."""
        return (self.bindings.named | BASE_AGENTS | self.agents.added) - {ANY}

    def is_cached(self, component: str) -> bool:
        """Whether this component's reads are cached for an outage."""
        return component in self.agents


def parse_rules(
    data: Mapping[str, str] | None,
    disabled: frozenset[str] = frozenset(),
    filters: Sequence[Filter] = FILTERS,
) -> Rules:
    """Parse the rules in a ConfigMap's data. None stands for no ConfigMap, and gives the built-in bindings.

    Never raises: each unreadable part becomes a Problem and is skipped, the rest applies. `disabled` are names of
    filters that the hub's options disable, `*` stands for all of them.
    """
    reader = _Reader({filter_.name: filter_ for filter_ in filters})
    for key in sorted(data or {}):
        reader.read(key, (data or {})[key])
    names = frozenset(reader.filters)
    off = names if ANY in disabled else disabled & names
    entries = {name: _by_component(entries) for name, entries in reader.entries.items()}
    agents = Agents(frozenset(reader.added), frozenset(reader.removed))
    return Rules(
        Bindings(tuple(filters), off, entries),
        agents,
        leases=frozenset(reader.leases),
        pool_resources=tuple(sorted(reader.resources, key=str)),
        problems=Problems(tuple(reader.problems), reader.unnamed_problems),
        digest=_digest(filters, off, reader.entries, agents, reader.leases, reader.resources),
    )


class _Reader:
    """Collects the entries of one ConfigMap's keys."""

    def __init__(self, filters: Mapping[str, Filter]) -> None:
        self.filters = filters
        self.entries = {name: [built_in(f, c) for c in sorted(f.components)] for name, f in filters.items()}
        self.added: set[str] = set()
        self.removed: set[str] = set()
        self.leases: set[tuple[str, str]] = set()
        self.resources: set[ResourceType] = set()
        self.problems: list[Problem] = []
        self.unnamed_problems = 0
        self._left = MAX_ENTRIES

    def read(self, key: str, value: str) -> None:
        filter_ = self.filters.get(key.removeprefix(FILTER_PREFIX))
        if filter_ is None and key not in NON_FILTER_KEYS:
            known = ", ".join(sorted(self.filters))
            meant = near_name(key, (*NON_FILTER_KEYS, *sorted(self.filters)))
            right = f"did you mean {meant}? K" if meant else "k"
            self._refuse(
                key,
                value,
                f"no such key: {right}nown are {', '.join(NON_FILTER_KEYS)} and the filters {known}",
            )
        elif len(value.encode("utf-8", "replace")) > MAX_VALUE_BYTES:
            self._refuse(key, value, f"the value is longer than {MAX_VALUE_BYTES} bytes; the key is skipped")
        else:
            for text in self._within_limit(key, split_entries(value)):
                try:
                    if filter_ is not None:
                        self._read_entry(filter_, key, text)
                    elif key == CACHE_AGENTS:
                        self._read_agent(text)
                    elif key == OFFLINE_LEASES:
                        self._read_lease(text)
                    else:
                        self._read_resource(text)
                except ValueError as error:
                    self._refuse(key, text, str(error))

    def _within_limit(self, key: str, texts: list[str]) -> list[str]:
        taken = texts[: self._left]
        self._left -= len(taken)
        if len(taken) < len(texts):
            why = f"only {MAX_ENTRIES} entries of a ConfigMap are read; this one and all after it are skipped"
            self._refuse(key, texts[len(taken)], why)
        return taken

    def _read_entry(self, filter_: Filter, key: str, text: str) -> None:
        entry = parse_entry(filter_, text, f"configmap key {key} entry {text[:MAX_SHOWN]!r}")
        if entry.component == HUB:
            raise ValueError("the hub's own requests are never filtered")
        self.entries[filter_.name].append(entry)

    def _read_agent(self, text: str) -> None:
        is_removed = takes_away(text)
        component = parse_component(text.removeprefix("-"))
        if component == HUB:
            raise ValueError("the hub's own requests are always cached")
        (self.removed if is_removed else self.added).add(component)

    def _read_lease(self, text: str) -> None:
        lease = parse_lease(text)
        if len(self.leases) >= MAX_LEASES and lease not in self.leases:
            raise ValueError(f"at most {MAX_LEASES} leases are supported")
        self.leases.add(lease)

    def _read_resource(self, text: str) -> None:
        resource = parse_kind(text)
        if len(self.resources) >= MAX_RESOURCES and resource not in self.resources:
            raise ValueError(f"at most {MAX_RESOURCES} further resources can be shared")
        self.resources.add(resource)

    def _refuse(self, key: str, text: str, why: str) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(Problem(key[:MAX_SHOWN], text[:MAX_SHOWN], why))
        else:
            self.unnamed_problems += 1


def _by_component(entries: Iterable[RuleEntry]) -> dict[str, tuple[RuleEntry, ...]]:
    by_component: dict[str, list[RuleEntry]] = {}
    for entry in entries:
        by_component.setdefault(entry.component, []).append(entry)
    return {component: tuple(named) for component, named in by_component.items()}


def _digest(
    filters: Iterable[Filter],
    off: frozenset[str],
    entries: Mapping[str, Iterable[RuleEntry]],
    agents: Agents,
    leases: Iterable[tuple[str, str]],
    resources: Iterable[ResourceType],
) -> str:
    """Return a digest that is equal for rules with the same meaning, in any order or spelling.

    A filter's repr includes its settings.
    """
    parts = [repr(filter_) for filter_ in filters]
    parts += [repr((sorted(off), sorted(agents.added), sorted(agents.removed), sorted(leases)))]
    parts += sorted(map(repr, resources))
    for name in sorted(entries):
        said = {(e.excludes, e.component, *sorted(e.resources), *sorted(e.verbs)) for e in entries[name]}
        parts.append(repr((name, sorted(map(repr, said)))))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
