"""Keeps a store equal to the cloud by the rules of client-go's reflector: lists, watches, resumes, or lists again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import islice

from kube.concurrency.backoff import Backoff
from kube.concurrency.notifier import Notifier
from kube.differences.reader import UnusableRecord
from kube.differences.records import CODING
from kube.errors import REFUSALS, StatusError
from kube.http.client import GZIP, Client, Switched, Unreachable
from kube.http.retry_after import bounded
from kube.reflector.bookmarks import Bookmarks
from kube.reflector.history_verifier import HistoryDiverged, HistoryVerifier, Miscounted
from kube.reflector.list_pages import Malformed, joined, read_items, reader_of
from kube.reflector.list_watch import ListWatch
from kube.reflector.questions import Questions
from kube.reflector.state import State
from kube.reflector.upstream import Upstream
from kube.requests.resource_versions import parse_version
from kube.store.history import Standing
from kube.store.store import Store
from kube.wire.api_objects import decode_object
from kube.wire.codec import WatchFrame
from kube.wire.codec_base import HISTORY_GAP

WATCH_SECONDS = (300.0, 600.0)
"""Each watch asks the server to end it after a random number of seconds between these, as in client-go's reflector."""
WATCH_MARGIN, EARLY = 15.0, 30.0
"""Seconds after that time at which the link counts as dead, and before it at which an end of the watch is normal."""
SHORT_WATCH = 1.0
"""Seconds. A shorter watch without an event counts as a failure, as in client-go's reflector."""
EVENT_BATCH = 100
"""The number of events that are applied before other tasks run, in some milliseconds."""
LONG_EVENT = 128 * 1024
"""Bytes. Other tasks run before and after a longer event. Parsing 1.5 MB, the largest object of a cluster, takes up to
0.05 s, and so does each filter."""
WATCH_CODINGS = f"{CODING},{GZIP}"
UNSERVED_RETRY_DELAY = 300.0
"""The least seconds between attempts for a kind that the cloud does not serve. A client's request ends the wait."""

logger = logging.getLogger(__name__)

type Failure = StatusError | Unreachable | Malformed | UnusableRecord


class Reflector:
    """Runs as one task, by `run`. `error` is the reason why the store does not follow the cloud, or None."""

    def __init__(
        self,
        client: Client,
        list_watch: ListWatch,
        store: Store,
        backoff: Backoff | None = None,
        begin_at: int = 0,
    ) -> None:
        """Set `begin_at`, the version of the first list, so that a client can resume from it; 0 for any."""
        self.client = client
        self.upstream: Upstream | None = None  # instead of the cloud, except for its version
        self._list_watch = list_watch
        self._store = store
        self._backoff = backoff or Backoff()
        self._must_list = True
        self.refusal: StatusError | None = None
        """The cloud's refusal, which clients get unchanged until the cloud answers otherwise."""
        self._retry = asyncio.Event()
        self._begin_at = begin_at
        self.verifier = HistoryVerifier(store)
        self.questions = Questions(list_watch)
        self._bookmarks = Bookmarks(store, self.verifier)
        self._must_be_plain = False
        """True after a watch whose difference did not fit. The next watch requests full objects."""
        self.restored: Callable[[], None] = lambda: None
        """Called when the reflector detects that the cloud was restored from a backup."""
        self.reached: Callable[[int], None] = lambda version: None
        """Called with each version that the cloud has just reported as current."""
        self.list_bytes = 0
        """Bytes of the list that is being read."""
        self.grew: Callable[[], None] = lambda: None
        """Called after each page of a list, when `list_bytes` has grown. It may end the reflector."""
        self.paced: Callable[[int], Awaitable[None]] | None = None
        """Called with the size of each piece of a watch; returns when the next may be read. It may end the
        reflector."""
        self._round: asyncio.Task[None] | None = None
        self.state = State.STOPPED
        self.error: Failure | None = None
        self.changed = Notifier()
        """Notified when `state` or `error` changes."""
        self.lists = self.watches = 0
        self.heard = 0.0
        """Monotonic seconds when the cloud last sent a list or watch data, or a watch ended; 0 for never."""
        self.listed = 0.0
        """Monotonic seconds when the list that the store last took was requested; 0 for never."""
        self.retry_at = 0.0
        """Monotonic seconds when the current delay ends at the latest."""

    @property
    def is_proven(self) -> bool:
        """True if the cloud itself has verified the store's history since the last break."""
        return self._is_at_cloud and not self._must_list and self.verifier.is_verified

    def remember_refusal(self, refusal: StatusError) -> None:
        """Set a refusal from an earlier process, so that an outage after a 403 permits nothing."""
        self.refusal = refusal
        self.changed.notify()

    def retry_now(self) -> None:
        """End the current delay, because a client waits for the store."""
        self._retry.set()

    def recovered(self) -> None:
        """Retry now and reset the delays, because a failed server is back."""
        self._backoff.forget()
        self.retry_now()

    async def run(self) -> None:
        """List and watch until cancelled. A complete store is watched from its version, without a list."""
        self._must_list, self.verifier.is_broken = not self._store.complete, self._store.complete
        try:
            while True:
                try:
                    await self._run_round()
                except Switched as error:
                    logger.debug("%s: %s", self._list_watch.path, error)
                    self.verifier.is_broken = True
                except (StatusError, Unreachable, Malformed) as error:
                    await self._back_off(error)
                except UnusableRecord as error:
                    # The events before the failed difference are valid. Resume from them at once.
                    logger.debug("%s: %s; the next watch is plain", self._list_watch.path, error)
                    self._must_be_plain = True
                    self._set_state(State.WAITING, error)
                except Exception as error:
                    # A bug of the hub, here or in a listener. The store may be wrong, so list again.
                    logger.exception("%s: the reflector failed", self._list_watch.path)
                    await self._back_off(Malformed(f"{type(error).__name__}: {error}"))
        finally:
            self._set_state(State.STOPPED, self.error)

    def disprove(self) -> None:
        """List at once and begin a new history, because another source found that the cloud was restored."""
        if not self._must_list:
            self._found_restored("the names of its objects are others")
            self._interrupt()

    def verify(self) -> None:
        """Verify the history before the watch resumes, because another source suspects a restore."""
        if self._store.standing is Standing.GOOD:  # also if the store waits for a new list
            self._store.set_standing(Standing.DOUBTED)
        if self.upstream is not None:
            self.upstream.forget_version()
        if not self._must_list and not self.verifier.is_broken:
            self.verifier.is_broken = True
            self._interrupt()

    def switch(self) -> None:
        """Reconnect, because another server is now preferred. The watch resumes if that server's history matches."""
        self.verifier.is_broken = True
        self.recovered()
        self._interrupt()

    def remind(self) -> None:
        """Request a bookmark, because a client has a newer version than the store, or a source compares versions."""
        if not self._bookmarks.expect() and self.state is State.WATCHING:
            self._interrupt()

    def _interrupt(self) -> None:
        """End the current round, unless the round itself calls this: then it decides its next step anyway."""
        if self._round is not None and self._round is not asyncio.current_task():
            self._round.cancel()

    async def _run_round(self) -> None:
        """List and watch once. `disprove` and `verify` end the round. A cancellation of `run` always propagates."""
        self._round = asyncio.create_task(self._list_and_watch(), name=f"watch {self._list_watch.path}")
        try:
            await asyncio.wait((self._round,))
        except asyncio.CancelledError:
            self._round.cancel()
            with contextlib.suppress(Exception, asyncio.CancelledError):
                await self._round  # awaits it: its error holds frames that refer to the task
            raise
        if not self._round.cancelled():
            self._round.result()

    async def _list_and_watch(self) -> None:
        try:
            if self.verifier.is_broken or self._must_list:
                self._bookmarks.expect()
            if self.verifier.is_broken and not self._must_list:
                await self._verify()
            if self._must_list:
                self._set_state(State.LISTING, self.error)
                self.lists += 1
                await self._list()
                self.verifier.begin()
                self._must_list, self.refusal = False, None
            self.verifier.is_broken = False
            await self._watch()
        except HistoryDiverged as error:
            self._found_restored(str(error))
        except Miscounted:
            pass  # names are next
        except StatusError as error:
            if error.code != 410 or not self.verifier.awaits_last_event:
                raise
            self.verifier.forget_last_event()
            self.verifier.is_broken = True

    @property
    def _is_at_cloud(self) -> bool:
        return self.upstream is None or not self.upstream.is_elsewhere

    async def _verify(self) -> None:
        """Begin to verify the cloud's history. HistoryDiverged if it cannot be the store's."""
        given = self._store.newest_given
        if self.upstream is not None and await self.upstream.leaves_cloud():
            # A leader verifies its own history and reports a new one to its followers, unless it was killed and lost
            # its versions. The copy on disk may be older than its report. This sends nothing over the cloud's link.
            self._must_list = not self.watches
            if self.watches:
                version, names = await self.questions.names(partial(self.upstream.request, resumes=True), 0)
                self.verifier.compare(version, names, given)
                self._store.set_standing(Standing.GOOD)
        elif self.verifier.awaits_last_event and (version := await self.current_version()) < given:
            # A cloud that is behind and quiet sends nothing, and the wait may be interrupted again and again.
            raise HistoryDiverged(f"the cloud is at version {version}, and was at {given}")
        elif not self.verifier.expect_last_event():
            await self._compare(given)

    async def _compare(self, given: int) -> None:
        """Compare the cloud with the store, by the number of objects or all names. In doubt, list again."""
        ask, at = self.client.request, self._store.version
        if self.verifier.can_count:
            same = given == at and await self.questions.count_at(ask, at) == len(self._store)
            version, count = (at, len(self._store)) if same else await self.questions.count(ask)
            if version < given:
                raise HistoryDiverged(f"the cloud is at version {version}, and was at {given}")
            if count is not None:
                self.verifier.expect_count(version, count)
                return None if same else self.reached(version)
        version, names = await self.questions.names(ask, len(self._store))
        self.verifier.compare(version, names, given)
        self._must_list = self._store.standing is Standing.DOUBTED
        return self.reached(version)

    def _found_restored(self, why: str) -> None:
        logger.warning("%s: the cloud was restored, or replaced: %s", self._list_watch.path, why)
        self._store.set_standing(Standing.DISPROVED)
        self._must_list = True
        self.restored()

    async def _back_off(self, error: Failure) -> None:
        code = error.code if isinstance(error, StatusError) else 0
        # With a copy of a kind that stays, a 404 is another server's: a gateway has misrouted the request.
        is_misrouted = code == 404 and self._store.complete and self._list_watch.type.is_permanent
        is_unserved = code == 404 and not is_misrouted
        # The cloud may refuse a watch in this way, but not a list.
        is_again = is_unserved and self.refusal is not None and self.refusal.code == 404
        # The text of a refusal is already bounded; that of an ERROR event comes from the server.
        wanted = bounded(error.retry_after or 0) if isinstance(error, StatusError) else None
        delay = self._backoff.next(UNSERVED_RETRY_DELAY if is_again else wanted)
        # The traceback's frames hold the cloud's response, up to MAX_LIST, for as long as the error is stored.
        error.__traceback__ = error.__cause__ = error.__context__ = None
        self.verifier.is_broken = True
        self._must_list |= code == 410 or isinstance(error, Malformed)
        if code == 410:
            self._bookmarks.note_expired()
        refused = False
        if isinstance(error, StatusError) and code in REFUSALS and not is_misrouted:
            refused, self._must_list, self.refusal = True, True, error
        logger.debug("%s: %s; next try in %.1f s", self._list_watch.path, error, delay)
        state = State.UNSERVED if is_unserved else State.REFUSED if refused else State.WAITING
        self._set_state(state, None if is_unserved else error)
        self._retry.clear()
        self.retry_at = time.monotonic() + delay
        # A client may shorten a delay, but not below the first one: clients in a loop must not flood the cloud.
        await asyncio.sleep(min(delay, self._backoff.first))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, delay - self._backoff.first)):
                await self._retry.wait()

    def _set_state(self, state: State, error: Failure | None) -> None:
        if (state, error) != (self.state, self.error):
            self.state, self.error = state, error
            self.changed.notify()

    async def _list(self) -> None:
        given, began = self._store.newest_given, time.monotonic()
        try:
            ask, begin_at = (
                (self.upstream or self.client).request,
                0 if self._store.complete else self._begin_at,
            )
            is_current, codec, pages = await self.questions.objects(ask, begin_at, self._page_came)
            items = await read_items(self._store, codec, *joined(pages))
        except ValueError as error:
            raise Malformed(f"list: {error}") from error
        finally:
            self.list_bytes = 0
        first, version = pages[0], pages[-1].version
        self.verifier.listed(version, items, given)
        self._store.may_lag = not (is_current and self._is_at_cloud)
        self._store.replace_items(codec, first.api_version, first.kind, version, items)
        if not self._store.may_lag:
            self.listed = began
            self.reached(version)
        self.heard = time.monotonic()

    def _page_came(self, size: int) -> None:
        self.list_bytes = size
        self.grew()

    async def current_version(self) -> int:
        """Request the cloud's current version. Raises a Failure if there is none."""
        is_namespaced = any(item.key[0] for item in islice(self._store, 1))
        return await self.questions.version(self.client.request, is_namespaced=is_namespaced)

    async def _watch(self) -> None:
        seconds = random.uniform(*WATCH_SECONDS)
        asks = self._bookmarks.decide(self.upstream)
        query = self._list_watch.watch_query(self.verifier.watch_from, int(seconds), bookmarks=asks)
        self.watches += 1
        began, events = time.monotonic(), 0
        codings = GZIP if self._must_be_plain else WATCH_CODINGS
        async with (self.upstream or self.client).watch(
            self._list_watch.path,
            query=query,
            accept=self._list_watch.accept_as("PartialObjectMetadata"),
            timeout=seconds + WATCH_MARGIN,
            codings=codings,
        ) as stream:
            self.refusal, self._must_be_plain, self.heard = None, False, time.monotonic()
            self.questions.warning = stream.warning
            self._set_state(State.WATCHING, None)
            reader = reader_of(stream, codings, self._store)
            try:
                async with asyncio.timeout(self.verifier.last_event_wait) as limit:
                    async for chunk in stream.chunks:
                        self.heard, size = time.monotonic(), len(chunk)
                        for frame in reader.feed(chunk):
                            events += 1
                            if is_long := len(frame.raw) > LONG_EVENT:
                                await asyncio.sleep(0)
                            self._apply(frame)
                            del frame  # maybe megabytes, and the next may come in an hour
                            if is_long or not events % EVENT_BATCH:
                                await asyncio.sleep(0)
                        del chunk
                        self.verifier.progress()
                        if not self.verifier.awaits_last_event:
                            limit.reschedule(None)
                        if self.paced is not None:
                            await self.paced(size)
                        self._must_list |= self._store.applied.were_passed(self._store.version)
                        if self._must_list or self._bookmarks.are_needless(self.upstream):
                            return
                reader.close()
            except TimeoutError:
                self.verifier.forget_last_event()
                self.verifier.is_broken = True
                return
            except UnusableRecord:
                raise
            except ValueError as error:
                raise Malformed(f"watch: {error}") from error
            finally:
                self.heard = time.monotonic()
        if (lasted := time.monotonic() - began) < seconds - EARLY:
            self.verifier.is_broken = True
            self.changed.notify()
        if not events and lasted < SHORT_WATCH:
            raise Unreachable(f"watch {self._list_watch.path}: it ended at once")

    def _apply(self, frame: WatchFrame) -> None:
        match frame.type:
            case "ADDED" | "MODIFIED" | "DELETED":
                peek = frame.peek or self._store.codec.peek(frame.raw)
                how = {"is_clouds": self._is_at_cloud, "has_gone": frame.type == "DELETED"}
                if self.verifier.event((peek.namespace, peek.name), peek.version, **how):
                    self._store.apply(frame.type, frame.raw, peek)
            case "BOOKMARK":
                encoding = self._store.codec.encoding
                bookmark = decode_object(encoding, frame.api_version, frame.kind, frame.raw)
                self._store.advance(bookmark.version)
                if gap := bookmark.annotations.get(HISTORY_GAP):
                    self._store.record_gap(parse_version(gap), bookmark.version)
                self._bookmarks.note_bookmark()
            case _ if frame.status is not None:
                raise frame.status
            case _:
                raise ValueError(f"unknown event type {frame.type!r}")
