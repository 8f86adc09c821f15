"""Replays the journal when the cloud is back: a status as a patch of its changes, an event as the client sent it.

The entries of one object are sent in their order. Each object is replayed independently, so one that the cloud refuses
does not delay the others. A refusal of the hub's identity is no refusal of an entry: credentials that expired during a
long outage must not cost the journal.

An event of a caller with a token of its own is sent only with a token of the same user. Tokens are in memory only:
after a restart such an event waits for its caller, which returns within minutes, or not at all.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable

from addons.link.health import Cloud
from addons.offline.writes.journal import Journal
from addons.offline.writes.journal_entries import EVENT, STATUS, EventEntry, JournalEntry, StatusEntry
from addons.telemetry import metrics
from kube.concurrency.backoff import Backoff
from kube.concurrency.notifier import wait_for_any
from kube.errors import StatusError
from kube.http.access_review import is_allowed, right_to, spec_of
from kube.http.client import ApiResponse, Client, Unreachable
from kube.json_type import Json
from kube.objects.object_patches import STRATEGIC_MERGE_PATCH
from kube.requests.request_info import parse_request
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from kube.wire.json_fields import parse_object

EVENT_PAUSE = 0.05
"""Seconds between events. 2,000 events take 100 s, so nodes that reconnect together do not overload their cluster."""
CALLER_TIMEOUT = 600.0
"""Seconds online for which an event waits for a caller to send a token. Open watches end within ten minutes."""
MAX_CONFLICTS = 5
"""Attempts to send a status in one replay, while other writers change the object."""

logger = logging.getLogger(__name__)


class RetryLater(Exception):
    """The cloud has not accepted an entry, and may accept it later."""


class NotNow(RetryLater):
    """The cloud accepts no entry now: it asks to wait `retry_after` seconds, or refuses the hub's identity."""

    def __init__(self, error: StatusError, path: str) -> None:
        super().__init__(f"{path}: {error}")
        self.retry_after = error.retry_after
        self.is_of_identity = error.code in (401, 403)


class Replay:
    """Replays entries whenever the cloud is reachable and the journal holds any."""

    def __init__(
        self,
        journal: Journal,
        client: Client,
        cloud: Cloud,
        reload_copies: Callable[[StatusEntry], Awaitable[None]],
        ended: Callable[[StatusEntry, int], None],
        client_of_user: Callable[[str], Client | None] = lambda _user: None,
    ) -> None:
        """`reload_copies` is called when no event will bring the cloud's form of an object in place of the node's: the
        cloud has refused its status, or has it already. It may raise Unreachable: then the status is sent again.

        `ended` is called when an object has no pending status any more, with the resourceVersion of the cloud's object
        after it, or 0 if the cloud did not accept it.

        `client_of_user` returns a client with a token that a user has sent; None if there is none.
        """
        self._client_of_user = client_of_user
        self._up_since = math.inf
        """When the cloud became reachable, in seconds of the loop."""
        self._journal = journal
        self._client = client
        self._cloud = cloud
        self._reload_copies = reload_copies
        self._ended = ended
        self._lock = asyncio.Lock()
        """Held while an entry is replayed: `run` and `flush` must not send the same entry at once."""
        self._is_refused = False
        """Whether the cloud refused the hub's identity at the last attempt."""

    async def run(self) -> None:
        """Replay until cancelled."""
        backoff = Backoff()
        while True:
            if not self._cloud.is_up or not (self._journal.statuses or self._journal.events):
                if not self._cloud.is_up:
                    self._up_since = math.inf
                await wait_for_any(self._cloud.changed.wait(), self._journal.added.wait())
                continue
            self._up_since = min(self._up_since, asyncio.get_running_loop().time())
            try:
                if await self._replay_all():
                    continue
                delay = backoff.next()
            except NotNow as error:
                delay = backoff.next(error.retry_after)
            await asyncio.sleep(delay)

    async def flush(self, path: str) -> None:
        """Replay the writes of one object now, and delete them from disk. RetryLater if the cloud does not accept
        them."""
        await self._journal.wait_forgotten(path)
        async with self._lock:
            entry = self._journal.statuses.get(path)
            if entry is not None:
                await self._replay_status(entry)
            for event in self._journal.events_of(path):
                await self._replay_event(event)
                await self._journal.wait_forgotten(path)
        await self._journal.wait_forgotten(path)

    async def _replay_all(self) -> bool:
        """Try each entry once; return False if one stays in the journal.

        NotNow at the first answer with a Retry-After.
        """
        try:
            done = await self._replay_each()
        except NotNow as error:
            if error.is_of_identity and not self._is_refused:
                logger.warning("the journal waits for credentials that the cloud accepts: %s", error)
            self._is_refused |= error.is_of_identity
            raise
        self._is_refused = False
        return done

    async def _replay_each(self) -> bool:
        late: set[str] = set()
        """The paths of objects with an entry that stays: their later entries must not overtake it."""
        statuses = list(self._journal.statuses.values())
        await asyncio.gather(*(self._journal.wait_forgotten(status.path) for status in statuses))
        for entry in statuses:
            async with self._lock:
                is_waiting = self._journal.statuses.get(entry.path) is entry
                if is_waiting and not await self._try(self._replay_status(entry)):
                    late.add(entry.path)
        for event in list(self._journal.events.values()):
            if not self._cloud.is_up:
                return False
            await self._journal.wait_forgotten(event.path)
            async with self._lock:
                if event.path in late or event.sequence not in self._journal.events:
                    continue
                if not await self._try(self._replay_event(event)):
                    late.add(event.path or event.name)
            await asyncio.sleep(EVENT_PAUSE)
        return not late

    async def _try(self, work: Awaitable[None]) -> bool:
        try:
            await work
        except NotNow:
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
        # In a thread, because an object of 3 MiB takes seconds.
        body = await asyncio.to_thread(entry.body)
        if self._journal.statuses.get(entry.path) is not entry:
            raise RetryLater(f"{entry.path}: a newer status has arrived")
        entry = self._journal.sending(entry)
        for _ in range(MAX_CONFLICTS):
            answer = await self._send("PATCH", f"{entry.path}/status", body, STRATEGIC_MERGE_PATCH)
            if not isinstance(answer, StatusError):
                version = _version_in(answer)
                if str(version) == entry.after.get("metadata", {}).get("resourceVersion"):
                    await self._copies_reloaded(entry)
                metrics.JOURNAL_REPLAYED.labels(STATUS).inc()
                self._remove(entry, version)
                return
            error = answer
            if error.code not in (409, 422):
                break
            # The name belongs to another object now (other uid), or another client wrote the object (same uid).
            if await self._uid(entry.path) != entry.uid:
                error = StatusError(404, "NotFound", "the object is gone")
            if error.code != 409:
                break
        else:
            raise RetryLater(f"{entry.path}: {error}")
        if error.code != 404:
            await self._copies_reloaded(entry)
        self._drop(entry, STATUS, error)

    async def _copies_reloaded(self, entry: StatusEntry) -> None:
        try:
            await self._reload_copies(entry)
        except Unreachable as error:
            raise RetryLater(f"{entry.path}: {error}") from error

    async def _replay_event(self, entry: EventEntry) -> None:
        if entry.user:
            answer = await self._send_for_user(entry)
        else:
            answer = await self._send(entry.method, entry.target, entry.body, entry.content_type)
        is_there = isinstance(answer, StatusError) and answer.code == 409 and entry.method == "POST"
        if isinstance(answer, StatusError) and not is_there:
            self._drop(entry, EVENT, answer)
        else:
            metrics.JOURNAL_REPLAYED.labels(EVENT).inc()
            self._journal.remove(entry)

    async def _send_for_user(self, entry: EventEntry) -> ApiResponse | StatusError:
        """Send as `_send` does, with a token of the entry's user. The cloud's refusal of that user is final."""
        client = self._client_of_user(entry.user)
        error = StatusError(401, "Unauthorized", "its caller has shown no token that the cloud accepts")
        try:
            if client is not None:
                return await client.request(
                    entry.method, entry.target, body=entry.body, content_type=entry.content_type
                )
        except Unreachable as unreachable:
            raise RetryLater(f"{entry.name}: {unreachable}") from unreachable
        except StatusError as refusal:
            if refusal.code >= 500 or refusal.code == 429:
                raise RetryLater(f"{entry.name}: {refusal}") from refusal
            error = refusal
        online = asyncio.get_running_loop().time() - self._up_since
        if error.code == 401 and online < CALLER_TIMEOUT:
            raise RetryLater(f"{entry.name}: {error}")
        return error

    async def _send(
        self, method: str, path: str, body: bytes, content_type: str
    ) -> ApiResponse | StatusError:
        """Send one write; return the cloud's answer if the cloud accepted or refused it. RetryLater otherwise."""
        try:
            return await self._client.request(method, path, body=body, content_type=content_type)
        except Unreachable as error:
            raise RetryLater(f"{path}: {error}") from error
        except StatusError as error:
            may_pass = error.code >= 500 or error.code == 429
            if error.code == 401 or (may_pass and error.retry_after is not None):
                raise NotNow(error, path) from error
            if may_pass:
                raise RetryLater(f"{path}: {error}") from error
            if error.code == 403:
                await self._check_right(method, path, error)
            return error

    async def _check_right(self, method: str, path: str, refusal: StatusError) -> None:
        """Return if the hub has the right to a write, so that a 403 concerned only this write; RetryLater otherwise.

        The cloud answers 403 for two reasons. Its authorizer refuses an identity without the right, which new
        credentials or a repaired role cure. An admission plugin refuses one write of an identity that has the right: a
        node that reports on a foreign pod, an event in a namespace that is being deleted.
        """
        try:
            if await is_allowed(self._client, spec_of(right_to(parse_request(method, path)))):
                return
        except StatusError as error:
            if error.code in (401, 403) or error.retry_after is not None:
                raise NotNow(error, path) from error
            raise RetryLater(f"{path}: {error}") from error
        except Unreachable as error:
            raise RetryLater(f"{path}: {error}") from error
        raise RetryLater(f"{path}: {refusal}") from refusal

    async def _uid(self, path: str) -> str:
        """Return the uid of the cloud's object; "" if the cloud has none."""
        try:
            answer = await self._client.request("GET", path)
            found: Json = parse_object(answer.body)
            return str(found["metadata"]["uid"])
        except StatusError as error:
            if error.code == 404:
                return ""
            raise RetryLater(f"{path}: {error}") from error
        except (Unreachable, ValueError, LookupError, TypeError) as error:
            raise RetryLater(f"{path}: {error}") from error

    def _drop(self, entry: JournalEntry, kind: str, error: StatusError) -> None:
        reason = "gone" if error.code == 404 else "refused"
        metrics.JOURNAL_DROPPED.labels(kind, reason).inc()
        logger.warning("the cloud refuses %s: %s", entry.name, error)
        if isinstance(entry, StatusEntry):
            self._remove(entry, 0)
        else:
            self._journal.remove(entry)

    def _remove(self, entry: StatusEntry, version: int) -> None:
        self._journal.remove(entry)
        if entry.path not in self._journal.statuses:
            self._ended(entry, version)


def _version_in(answer: ApiResponse) -> int:
    """Return the resourceVersion of the object in an answer; 0 if it is unreadable."""
    codec = codec_for(Encoding.JSON)
    try:
        return codec.peek(codec.decode_single(answer.body)[2]).version
    except ValueError:
        return 0
