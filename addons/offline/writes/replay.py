"""Replays the journal when the cloud is back: a status as a patch of what changed, an event as the client sent it.

Each entry is replayed by itself, so an entry that the cloud refuses does not hold up the others. A refusal of the hub's
identity is no refusal of an entry: credentials that expired during a long outage must not cost the journal.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from itertools import takewhile

import orjson

from addons.offline.writes.journal import EVENT, STATUS, EventEntry, Journal, StatusEntry
from addons.offline.writes.own_rights import is_allowed
from addons.telemetry import metrics
from kube.concurrency.backoff import Backoff
from kube.concurrency.pulse import Pulse
from kube.errors import StatusError
from kube.http.client import Client, Unreachable
from kube.objects.object_patches import strategic_diff
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding

EVENT_PAUSE = 0.05
"""Seconds between events. 2,000 events take 100 s, so nodes that come back together do not overload their cluster."""
MAX_CONFLICTS = 5
"""Times that a status is sent in one turn because somebody else wrote the object meanwhile."""
STRATEGIC_MERGE = "application/strategic-merge-patch+json"

logger = logging.getLogger(__name__)


class RetryLater(Exception):
    """The cloud has not taken an entry, and may take it another time."""


class IdentityRefused(RetryLater):
    """The cloud refuses the hub's identity, and so would refuse every entry."""


class Replay:
    """Replays entries whenever there is a cloud and the journal holds any."""

    def __init__(
        self,
        journal: Journal,
        client: Client,
        is_up: Callable[[], bool],
        changed: Pulse,
        refused: Callable[[StatusEntry], Awaitable[None]],
    ) -> None:
        """`changed` is notified when the cloud comes or goes; `refused` is called when the cloud refuses a status."""
        self._journal = journal
        self._client = client
        self._is_up = is_up
        self._changed = changed
        self._refused = refused
        self._status_lock = asyncio.Lock()
        """Held while a status is replayed: `run` and `flush` must not send the same one at once."""
        self._is_refused = False
        """Whether the cloud refused the hub's identity when it was last asked."""

    async def run(self) -> None:
        """Replay until cancelled."""
        backoff = Backoff()
        while True:
            if not self._is_up() or not (self._journal.statuses or self._journal.events):
                await self._wait_for_change()
            elif not await self._replay_all_allowed():
                await asyncio.sleep(backoff.next())

    async def flush(self, path: str) -> None:
        """Replay one object's status now, if one waits. RetryLater when the cloud does not take it."""
        async with self._status_lock:
            entry = self._journal.statuses.get(path)
            if entry is not None:
                await self._replay_status(entry)

    async def _wait_for_change(self) -> None:
        waits = [pulse.wait() for pulse in (self._changed, self._journal.added)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _replay_all_allowed(self) -> bool:
        """As `_replay_all`, but stop at the first entry where the cloud refuses the hub's identity."""
        try:
            done = await self._replay_all()
        except IdentityRefused as error:
            if not self._is_refused:
                logger.warning("the journal waits for credentials that the cloud accepts: %s", error)
            self._is_refused = True
            return False
        self._is_refused = False
        return done

    async def _replay_all(self) -> bool:
        """Try each entry once; False when an entry stays in the journal for later."""
        all_replayed = True
        for entry in list(self._journal.statuses.values()):
            async with self._status_lock:
                if self._journal.statuses.get(entry.path) is entry:
                    all_replayed &= await self._try(self._replay_status(entry))
        for event in list(self._journal.events.values()):
            if not self._is_up():
                return False
            all_replayed &= await self._try(self._replay_event(event))
            await asyncio.sleep(EVENT_PAUSE)
        return all_replayed

    async def _try(self, work: Awaitable[None]) -> bool:
        try:
            await work
        except IdentityRefused:
            raise
        except RetryLater as error:
            logger.info("the journal waits: %s", error)
            return False
        except Exception:
            # The task must live on: without it no entry would ever reach the cloud.
            logger.exception("an entry of the journal could not be sent")
            return False
        return True

    async def _replay_status(self, entry: StatusEntry) -> None:
        patch = strategic_diff(entry.before, entry.after, entry.kind)
        patch.setdefault("metadata", {})["uid"] = entry.uid
        for _ in range(MAX_CONFLICTS):
            error = await self._send("PATCH", f"{entry.path}/status", orjson.dumps(patch), STRATEGIC_MERGE)
            if error is None:
                metrics.JOURNAL_REPLAYED.labels(STATUS).inc()
                self._journal.remove(entry)
                return
            if error.code not in (409, 422):
                break
            # Either another object has this name now, or somebody else wrote the object between. Its uid tells.
            if await self._uid(entry.path) != entry.uid:
                error = StatusError(404, "NotFound", "the object is gone")
            if error.code != 409:
                break
        else:
            raise RetryLater(f"{entry.path}: {error}")
        self._drop(entry, STATUS, error)
        if error.code != 404:
            await self._refused(entry)

    async def _replay_event(self, entry: EventEntry) -> None:
        error = await self._send(entry.method, entry.target, entry.body, entry.content_type)
        if error is None or (error.code == 409 and entry.method == "POST"):
            metrics.JOURNAL_REPLAYED.labels(EVENT).inc()
            self._journal.remove(entry)
        elif error.code == 404 and self._is_creation_pending(entry):
            raise RetryLater(f"{entry.target}: {error}")
        else:
            self._drop(entry, EVENT, error)

    def _is_creation_pending(self, entry: EventEntry) -> bool:
        """Whether the journal holds an earlier creation of the event that `entry` patches."""
        earlier = takewhile(lambda each: each is not entry, self._journal.events.values())
        return any(_created(each) == entry.target.partition("?")[0] for each in earlier)

    async def _send(self, method: str, path: str, body: bytes, content_type: str) -> StatusError | None:
        """Send one write. None when the cloud took it, its StatusError when it refused, RetryLater otherwise."""
        try:
            await self._client.request(method, path, body=body, content_type=content_type)
        except Unreachable as error:
            raise RetryLater(f"{path}: {error}") from error
        except StatusError as error:
            if error.code >= 500 or error.code == 429:
                raise RetryLater(f"{path}: {error}") from error
            if error.code == 401:
                raise IdentityRefused(f"{path}: {error}") from error
            if error.code == 403:
                await self._check_right(method, path, error)
            return error
        return None

    async def _check_right(self, method: str, path: str, refusal: StatusError) -> None:
        """Return when the hub has the right to a write, so that a 403 was for this one write; RetryLater otherwise."""
        try:
            if await is_allowed(self._client, method, path):
                return
        except StatusError as error:
            if error.code in (401, 403):
                raise IdentityRefused(f"{path}: {error}") from error
            raise RetryLater(f"{path}: {error}") from error
        except Unreachable as error:
            raise RetryLater(f"{path}: {error}") from error
        raise RetryLater(f"{path}: {refusal}") from refusal

    async def _uid(self, path: str) -> str:
        """The uid of the cloud's object; "" when the cloud has none."""
        try:
            answer = await self._client.request("GET", path)
            return str(orjson.loads(answer.body)["metadata"]["uid"])
        except StatusError as error:
            if error.code == 404:
                return ""
            raise RetryLater(f"{path}: {error}") from error
        except (Unreachable, ValueError, LookupError, TypeError) as error:
            raise RetryLater(f"{path}: {error}") from error

    def _drop(self, entry: StatusEntry | EventEntry, kind: str, error: StatusError) -> None:
        reason = "gone" if error.code == 404 else "refused"
        metrics.JOURNAL_DROPPED.labels(kind, reason).inc()
        logger.warning("the cloud refuses %s: %s", entry.name, error)
        self._journal.remove(entry)


def _created(entry: EventEntry) -> str:
    """The path of the event that an entry creates; "" where it creates none."""
    if entry.method != "POST":
        return ""
    try:
        codec = codec_for(Encoding(entry.content_type))
        name = codec.peek(codec.decode_single(entry.body)[2]).name
    except ValueError:
        return ""
    return f"{entry.target.partition('?')[0]}/{name}"
