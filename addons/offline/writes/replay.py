"""Brings the journal to the cloud when there is one: statuses as differences, events as they came.

Each entry goes by itself: one that the cloud refuses does not hold up the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from itertools import takewhile

import orjson

from addons.offline.writes.journal import EVENT, STATUS, EventEntry, Journal, StatusEntry
from addons.telemetry import metrics
from kube.concurrency.backoff import Backoff
from kube.concurrency.pulse import Pulse
from kube.errors import StatusError
from kube.http.client import Client, Unreachable
from kube.objects.patches import strategic_diff

EVENT_PAUSE = 0.05
"""Seconds between events: 2,000 of them take 100 s, and a cluster's nodes that come back together do not storm it."""
CONFLICTS = 5
"""Times a status is sent again because somebody else wrote the object meanwhile."""
STRATEGIC_MERGE = "application/strategic-merge-patch+json"

logger = logging.getLogger(__name__)


class Later(Exception):
    """The cloud has not taken the entry, and may take it another time."""


class Replay:
    """Waits for the cloud and for entries, and puts them together."""

    def __init__(
        self,
        journal: Journal,
        client: Client,
        is_up: Callable[[], bool],
        changed: Pulse,
        refused: Callable[[StatusEntry], Awaitable[None]],
    ) -> None:
        """`changed` beats when the cloud comes or goes; `refused` is told of a status that the cloud does not take."""
        self._journal = journal
        self._client = client
        self._is_up = is_up
        self._changed = changed
        self._refused = refused
        self._turn = asyncio.Lock()

    async def run(self) -> None:
        """Replay whatever waits whenever there is a cloud, for good."""
        backoff = Backoff()
        while True:
            if not self._is_up() or not (self._journal.statuses or self._journal.events):
                await self._moved()
            elif not await self._pass():
                await asyncio.sleep(backoff.next())

    async def settle(self, path: str) -> None:
        """Bring one object's status to the cloud now, if one waits. Later when that cannot be."""
        async with self._turn:
            entry = self._journal.statuses.get(path)
            if entry is not None:
                await self._settle(entry)

    async def _moved(self) -> None:
        waits = [pulse.wait() for pulse in (self._changed, self._journal.added)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _pass(self) -> bool:
        """Try each entry once; whether all went."""
        went = True
        for entry in list(self._journal.statuses.values()):
            async with self._turn:
                if self._journal.statuses.get(entry.path) is entry:
                    went &= await self._try(self._settle(entry))
        for event in list(self._journal.events.values()):
            if not self._is_up():
                return False
            went &= await self._try(self._send(event))
            await asyncio.sleep(EVENT_PAUSE)
        return went

    async def _try(self, work: Awaitable[None]) -> bool:
        try:
            await work
        except Later as error:
            logger.info("the journal waits: %s", error)
            return False
        except Exception:
            # Without the replay nothing of the journal would reach the cloud any more.
            logger.exception("an entry of the journal could not be sent")
            return False
        return True

    async def _settle(self, entry: StatusEntry) -> None:
        patch = strategic_diff(entry.before, entry.after, entry.kind)
        patch.setdefault("metadata", {})["uid"] = entry.uid
        for _ in range(CONFLICTS):
            error = await self._ask("PATCH", f"{entry.path}/status", orjson.dumps(patch), STRATEGIC_MERGE)
            if error is None:
                metrics.JOURNAL_REPLAYED.labels(STATUS).inc()
                self._journal.done(entry)
                return
            if error.code not in (409, 422):
                break
            # Another object of that name, or somebody else's write between: the cloud's object tells.
            if await self._uid(entry.path) != entry.uid:
                error = StatusError(404, "NotFound", "the object is gone")
            if error.code != 409:
                break
        else:
            raise Later(f"{entry.path}: {error}")
        self._drop(entry, STATUS, error)
        if error.code != 404:
            await self._refused(entry)

    async def _send(self, entry: EventEntry) -> None:
        error = await self._ask(entry.method, entry.target, entry.body, entry.content_type)
        if error is None or (error.code == 409 and entry.method == "POST"):
            metrics.JOURNAL_REPLAYED.labels(EVENT).inc()
            self._journal.done(entry)
        elif error.code == 404 and self._awaits_creation(entry):
            raise Later(f"{entry.target}: {error}")
        else:
            self._drop(entry, EVENT, error)

    def _awaits_creation(self, entry: EventEntry) -> bool:
        """Whether an event that came before may be the one that this patch is of."""
        earlier = takewhile(lambda each: each is not entry, self._journal.events.values())
        return any(each.method == "POST" for each in earlier)

    async def _ask(self, method: str, path: str, body: bytes, content_type: str) -> StatusError | None:
        """The cloud's refusal, None when it took the write; Later when it did neither."""
        try:
            await self._client.request(method, path, body=body, content_type=content_type)
        except Unreachable as error:
            raise Later(f"{path}: {error}") from error
        except StatusError as error:
            if error.code >= 500 or error.code == 429:
                raise Later(f"{path}: {error}") from error
            return error
        return None

    async def _uid(self, path: str) -> str:
        """Of the cloud's object; "" when there is none."""
        try:
            answer = await self._client.request("GET", path)
            return str(orjson.loads(answer.body)["metadata"]["uid"])
        except StatusError as error:
            if error.code == 404:
                return ""
            raise Later(f"{path}: {error}") from error
        except (Unreachable, ValueError, LookupError, TypeError) as error:
            raise Later(f"{path}: {error}") from error

    def _drop(self, entry: StatusEntry | EventEntry, kind: str, error: StatusError) -> None:
        reason = "gone" if error.code == 404 else "refused"
        metrics.JOURNAL_DROPPED.labels(kind, reason).inc()
        logger.warning("the cloud does not take %s: %s", entry.name, error)
        self._journal.done(entry)
