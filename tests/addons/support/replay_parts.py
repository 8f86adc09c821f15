"""A replay on a scripted cloud, and the statuses that it has reverted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from addons.link.health import Cloud
from addons.offline.writes.journal import Journal
from addons.offline.writes.journal_entries import EventEntry, StatusEntry
from addons.offline.writes.replay import Replay
from addons.telemetry import metrics
from kube.concurrency.notifier import Notifier
from kube.errors import StatusError
from kube.http.client import Client
from kube.json_type import Json
from tests.addons.support.observed import until, value_of
from tests.addons.support.offline_parts import QueuedAnswers
from tests.addons.support.samples import raw
from tests.support.background import beside

EVENTS = "/api/v1/namespaces/default/events"
CONFLICT = StatusError(409, "Conflict", "somebody else wrote it")
GONE = StatusError(404, "NotFound", "not there")
EXPIRED = StatusError(401, "Unauthorized", "Unauthorized")
FORBIDDEN = StatusError(403, "Forbidden", "no")
MAY, MAY_NOT = ({"status": {"allowed": allowed}} for allowed in (True, False))
"""The authorizer's answers to a SelfSubjectAccessReview."""
OVERLOADED = StatusError(503, "ServiceUnavailable", "later")


class World:
    """A replay, its cloud and whether that is up, and the reverted statuses."""

    def __init__(self, journal: Journal, client: Client | None = None) -> None:
        self.journal = journal
        self.cloud = QueuedAnswers()
        """The cloud, unless a test sets another client."""
        self.is_up = True
        self.changed = Notifier()
        self.taken_back: list[StatusEntry] = []
        self.ended: list[tuple[str, int]] = []
        """The paths of statuses that left the journal, with their versions in the cloud."""
        self.fails: Exception | None = None
        self.clients: dict[str, Client] = {}
        """The clients of the users with a known token."""
        parts = journal, client or self.cloud, cast(Cloud, self), self._reload_copies, self._end
        self.replay = Replay(*parts, self.clients.get)

    def _end(self, entry: StatusEntry, version: int) -> None:
        self.ended.append((entry.path, version))

    async def _reload_copies(self, entry: StatusEntry) -> None:
        self.taken_back.append(entry)
        if self.fails is not None:
            raise self.fails

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with beside(self.replay.run()):
            yield

    async def until_empty(self) -> None:
        await until(lambda: not self.journal.statuses and not self.journal.events, 300)

    def put(self, name: str = "n1", uid: str = "u", version: str = "1", **changed: str) -> StatusEntry:
        """Journal a status with these conditions."""
        metadata = {"name": name, "uid": uid, "resourceVersion": version}
        before: Json = {"metadata": metadata, "status": {"conditions": conditions(Same="True", Ready="True")}}
        after: Json = {
            "metadata": metadata,
            "status": {"conditions": conditions(**{"Same": "True", "Ready": "True", **changed})},
        }
        return self.journal.put_status(StatusEntry(f"/api/v1/nodes/{name}", "Node", uid, before, after))

    def put_event(self, name: str, method: str = "POST", user: str = "") -> EventEntry:
        target = EVENTS if method == "POST" else f"{EVENTS}/{name}"
        event = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": name}}
        return self.journal.put_event(method, target, "application/json", raw(event), user)


def conditions(**states: str) -> list[Json]:
    return [{"type": kind, "status": state} for kind, state in states.items()]


def dropped(kind: str, reason: str) -> float:
    return value_of(metrics.JOURNAL_DROPPED.labels(kind, reason))


def replayed(kind: str) -> float:
    return value_of(metrics.JOURNAL_REPLAYED.labels(kind))
