"""The newest state of each object that the cloud returned for an accepted write, until all copies have it.

Each write of an object passes here, from any client and by any route. Before it is sent, the disk records that the
object's state is unknown (`begin`), except for a status of kubelet, which kubelet would report again. When the cloud
has accepted the write, cached answers with only this object take its new state, whichever caller owns them. The state
is stored until all copies have it: the node's copies get it once the cloud is away, and cached lists when they are
read. A write whose answer was lost makes the object unknown to its readers; a list shows it as of the list's version.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from addons.link.health import Cloud
from addons.offline.accepted.newest_forms import (
    NewestForm,
    forms_in,
    may_hold,
    name_in,
    update_copy,
)
from addons.offline.cached_response import CachedResponse
from addons.offline.cached_responses import CachedResponses
from addons.offline.copies import DiskCopies
from addons.offline.tables.copy_meta import is_shown, list_watch_of
from addons.offline.tables.disk_access import DiskAccess
from addons.offline.tables.write_behind import WriteBehind
from addons.requests.offline_policy import is_event, is_status_write
from addons.views.source import Source
from kube.bounds import reached
from kube.disk.rows import table_of
from kube.errors import StatusError
from kube.http.client import RawResponse, Unreachable
from kube.reflector.list_watch import ListWatch
from kube.requests.object_ref import ObjectRef
from kube.requests.request_info import RequestInfo, parse_request
from kube.store.store import Store

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
NO_WRITES = frozenset({"exec", "attach", "portforward", "proxy", "log", "token"})
"""Subresources that change nothing of their object."""
DURABLE_WAIT = 0.25
"""Seconds that a write waits for the disk, before it is sent and before it is answered."""
LOST_WRITE_TIMEOUT = 60.0
"""Seconds after which a write whose answer was lost has reached the cloud or never will: kube-apiserver's own limit."""
MAX_FORMS = 1000
MAX_BYTES = 8 * 1024 * 1024
"""Bytes of all stored states."""
MAX_RECENT = 500
"""Stored numbers of recent writes, against reads that they overtake, and stored unknown objects."""
PRUNE_THRESHOLD = 32
"""Stored states from which on the hub searches for those that all copies have."""
TABLE = table_of("accepted")
"""Rows: the state of an object, or an empty value if it is unknown."""
UNKNOWN = b""

type ObjectReader = Callable[[str], Awaitable[CachedResponse]]
"""Reads the object at a path from the cloud; StatusError or Unreachable if that fails."""


class Doubt(NamedTuple):
    """An unknown state: of an object, of some objects, or (`is_creation`) whether a further object exists among
    them."""

    ref: ObjectRef
    is_creation: bool = False

    @property
    def row(self) -> str:
        return f"{self.ref.text}{'+' if self.is_creation else ''}"

    @classmethod
    def of_row(cls, row: str) -> Doubt:
        """Parse the name of a row; ValueError and TypeError for any other name."""
        return cls(ObjectRef(*row.removesuffix("+").split("/")), row.endswith("+"))


class AcceptedWrites:
    """The newest states by object, and the writes in flight."""

    def __init__(
        self,
        access: DiskAccess,
        answers: CachedResponses,
        copies: DiskCopies,
        sources: Iterable[Source],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make the record. `sources` are those that run, at any time. `clock` is like `time.monotonic`."""
        self._access = access
        self._answers = answers
        self._copies = copies
        self._clock = clock
        self._sources = sources
        self._forms: OrderedDict[ObjectRef, NewestForm] = OrderedDict()
        self._bytes = 0
        self._looked_at = PRUNE_THRESHOLD
        self._pending: dict[Doubt, int] = {}
        """The number of writes that were sent and are not answered yet."""
        self._lost: OrderedDict[Doubt, float] = OrderedDict()
        """When the answer to each write was lost, by `clock`."""
        self._recent: OrderedDict[ObjectRef, int] = OrderedDict()
        """The number of the last write of each object, for the newest MAX_RECENT."""
        self._forgotten = 0
        """The number of the newest write that `_recent` has dropped."""
        self.count = 0
        """The number of writes that have ended."""
        self._rows = WriteBehind(access, TABLE)
        access.on_loss.append(self._write_anew)
        copies.on_restore.append(self.forget_all)
        copies.on_read.append(self._lay)

    async def open(self) -> None:
        """Load the rows of an earlier process: a write without an answer makes its object unknown."""
        await self._rows.open(self._take)

    # -- a write, from its request to its answer --------------------------------------------------------------------

    async def begin(self, info: RequestInfo) -> None:
        """Record that a write is about to be sent; return when it is on disk, or after DURABLE_WAIT."""
        doubt = _doubt(info)
        if doubt is None or _is_repeated(info) or not self._concerns(doubt.ref):
            return
        self._pending[doubt] = self._pending.get(doubt, 0) + 1
        self._write(doubt)
        await self._on_disk()

    async def accepted(
        self, info: RequestInfo, answer: RawResponse, read: ObjectReader | None = None
    ) -> None:
        """Apply the cloud's answer with a code below 300. If that does not have the object, `read` it."""
        doubt = _doubt(info)
        if doubt is None:
            return
        try:
            response = CachedResponse.of(answer.headers, answer.body)
            forms = forms_in(info, doubt.ref, response)
        except (ValueError, LookupError):
            forms, response = {}, None
        if not forms and read is not None and self._concerns(doubt.ref):
            forms = await self._read(info, doubt.ref.named(info.name or name_in(answer)), read)
        self._end(info, doubt)
        self._ended(doubt.ref)
        if not forms and not (info.verb == "deletecollection" and response is not None):
            self._forget(Doubt(doubt.ref))
        for ref, form in forms.items():
            if form is None:
                self._forget(Doubt(ref))
            else:
                self._renew(ref, form)
        await self._on_disk()

    async def _read(
        self, info: RequestInfo, ref: ObjectRef, read: ObjectReader
    ) -> dict[ObjectRef, NewestForm | None]:
        since = self.count
        if info.type is not None and ref.name:
            path = info.type.path(info.namespace, ref.name)
            with contextlib.suppress(StatusError, Unreachable, ValueError, LookupError):
                forms = forms_in(parse_request("GET", path), ref, await read(path))
                return forms if self.is_current(info, since) else {}
        return {}

    def refused(self, info: RequestInfo) -> None:
        """Record that the cloud has refused a write, or never received it."""
        if (doubt := _doubt(info)) is not None:
            self._end(info, doubt)

    def lost(self, info: RequestInfo) -> None:
        """Record that the cloud may or may not have accepted a write."""
        doubt = _doubt(info)
        if doubt is not None:
            self._end(info, doubt)
            self._ended(doubt.ref)
            if not _is_repeated(info):
                self._forget(doubt)

    # -- readers' questions -----------------------------------------------------------------------------------------

    def is_current(self, info: RequestInfo, since: int) -> bool:
        """Whether no object in an answer was written since its request arrived, when `count` had this value."""
        if since == self.count or (ref := ObjectRef.of(info)) is None:
            return True
        if since < self._forgotten:
            return False
        later = (written for written, number in self._recent.items() if number > since)
        return not any(written.meets(ref) for written in later)

    def learn(self, info: RequestInfo) -> None:
        """Record that the cloud has just sent an object's state."""
        if self._lost and (ref := ObjectRef.of(info)) and self._lost.pop(Doubt(ref), None) is not None:
            self._write(Doubt(ref))

    def is_unknown(self, ref: ObjectRef, *, is_held: bool) -> bool:
        """Whether an object may differ from every copy. A creation leaves existing objects unchanged."""
        self._settle()
        return any(doubt.ref.meets(ref) and not (is_held and doubt.is_creation) for doubt in self._lost)

    def newest(self, ref: ObjectRef) -> dict[ObjectRef, NewestForm]:
        """Return the newest states of the objects that belong to `ref`."""
        return {written: form for written, form in self._forms.items() if written.meets(ref)}

    def apply_to_copies(self) -> None:
        """Apply accepted writes to the node's copies: while the cloud is away no event brings them."""
        for source in list(self._sources) if self._forms else ():
            if source.store.complete:
                self._lay(source.list_watch, source.store)

    async def follow(self, cloud: Cloud) -> None:
        """Apply accepted writes to the copies when an outage begins, until cancelled."""
        while True:
            if not cloud.is_up:
                self.apply_to_copies()
            await cloud.changed.wait()

    def forget_all(self) -> None:
        """Drop all states, because the cloud was restored from a backup."""
        doubts = {*map(Doubt, self._forms), *self._lost}
        self._forms.clear()
        self._lost.clear()
        self._bytes = 0
        for doubt in doubts:
            self._write(doubt)

    # -- inside -----------------------------------------------------------------------------------------------------

    def _concerns(self, ref: ObjectRef) -> bool:
        """Whether a write may change any copy or stored answer."""
        return self._answers.holds(ref) or any(True for _ in self._copies_of(ref))

    def _copies_of(self, ref: ObjectRef) -> Iterator[Source | None]:
        """Return the sources that may hold an object, and None for each copy on disk without a running source."""
        for source in list(self._sources):
            if may_hold(source.list_watch, ref):
                yield source
        for meta in self._copies.idle().values():
            if is_shown(meta) and may_hold(list_watch_of(meta), ref):
                yield None

    def _end(self, info: RequestInfo, doubt: Doubt) -> None:
        if _is_repeated(info) or doubt not in self._pending:
            return
        self._pending[doubt] -= 1
        if not self._pending[doubt]:
            del self._pending[doubt]
            self._write(doubt)

    def _ended(self, ref: ObjectRef) -> None:
        self.count += 1
        self._recent[ref] = self.count
        self._recent.move_to_end(ref)
        if len(self._recent) > MAX_RECENT:
            _, self._forgotten = self._recent.popitem(last=False)

    def _forget(self, doubt: Doubt) -> None:
        """Delete stored answers about objects whose state is now unknown."""
        is_relevant = self._concerns(doubt.ref)
        if doubt.is_creation:
            self._answers.forget_about(doubt.ref, singles=False)
        else:
            self._answers.forget_about(doubt.ref)
            for written in self.newest(doubt.ref):
                self._drop(written)
        if is_relevant:
            self._note_lost(doubt)

    def _note_lost(self, doubt: Doubt) -> None:
        self._lost[doubt] = self._clock()
        self._write(doubt)
        if len(self._lost) > MAX_RECENT:
            reached("objects that are unknown")
            oldest, _ = self._lost.popitem(last=False)
            self._write(oldest)
            self._note_lost(Doubt(ObjectRef(*oldest.ref[:2])))

    def _renew(self, ref: ObjectRef, form: NewestForm) -> None:
        known = self._forms.get(ref)
        if known is not None and 0 < form.version < known.version:
            return  # another write has overtaken this one
        if form.obj is not None:
            self._answers.renew(ref, CachedResponse.of_object(form.obj))
        else:
            self._answers.forget_about(ref, lists=False)
        self._lost.pop(Doubt(ref), None)
        self._drop(ref)
        if self._concerns(ref):
            self._forms[ref] = form
            self._bytes += form.size
            self._evict_excess()
        self._write(Doubt(ref))

    def _evict_excess(self) -> None:
        if len(self._forms) >= self._looked_at:
            for ref in [ref for ref, form in self._forms.items() if not self._is_needed(ref, form)]:
                self._drop(ref)
            self._looked_at = max(PRUNE_THRESHOLD, 2 * len(self._forms))
        while len(self._forms) > MAX_FORMS or self._bytes > MAX_BYTES:
            reached("writes that copies lack")
            self._forget(Doubt(next(iter(self._forms))))

    def _is_needed(self, ref: ObjectRef, form: NewestForm) -> bool:
        """Whether any copy or stored answer may be older than a state."""
        if self._answers.holds(ref, lists=True):
            return True
        for source in self._copies_of(ref):
            if source is None or (source.copy is not None and not source.copy.is_written):
                return True
            item = source.store.get((ref.namespace, ref.name))
            if source.store.version < form.version or (form.obj is None and item is not None):
                return True
        return False

    def _drop(self, ref: ObjectRef) -> None:
        form = self._forms.pop(ref, None)
        if form is not None:
            self._bytes -= form.size
            self._write(Doubt(ref))

    def _settle(self) -> None:
        """Drop lost writes whose events would have arrived by now."""
        now = self._clock()
        for doubt, when in list(self._lost.items()):
            copies = [*self._copies_of(doubt.ref)] if now - when > LOST_WRITE_TIMEOUT else [None]
            heard = (source.reflector.heard for source in copies if source is not None)
            if not copies or any(at > when + LOST_WRITE_TIMEOUT for at in heard):
                del self._lost[doubt]
                self._write(doubt)

    def _lay(self, list_watch: ListWatch, store: Store) -> None:
        for ref, form in list(self._forms.items()):
            if may_hold(list_watch, ref):
                update_copy(store, list_watch, ref, form)

    # -- the disk ---------------------------------------------------------------------------------------------------

    def _write(self, doubt: Doubt) -> None:
        """Write to disk whether an object's state is unknown, or its newest form."""
        form = self._forms.get(doubt.ref) if not doubt.is_creation else None
        if doubt in self._pending or doubt in self._lost:
            self._rows.put(doubt.row, UNKNOWN, is_urgent=True)
        elif form is not None:
            self._rows.put(doubt.row, form.dump(), is_urgent=True)
        else:
            self._rows.delete(doubt.row, may_be_unread=True)

    def _write_anew(self) -> None:
        for doubt in {*map(Doubt, self._forms), *self._lost, *self._pending}:
            self._write(doubt)

    def _take(self, rows: Mapping[str, bytes | None]) -> Collection[str]:
        unwanted = []
        for row, value in rows.items():
            try:
                doubt = Doubt.of_row(row)
                form = NewestForm.load(value) if value else None
            except (ValueError, TypeError):
                unwanted.append(row)
                continue
            if doubt.ref in self._forms or doubt in self._lost or doubt in self._pending:
                continue  # what this process knows is newer
            if form is None:
                self._answers.forget_about(doubt.ref, singles=not doubt.is_creation)
                self._lost[doubt] = self._clock()
            else:
                self._forms[doubt.ref] = form
                self._bytes += form.size
        return unwanted

    async def _on_disk(self) -> None:
        """Return when the disk has the row, or after DURABLE_WAIT: no client waits for a disk that fails."""
        if self._access.is_failing:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DURABLE_WAIT):
                await self._answers.written()
                await self._rows.settled()


def is_write(info: RequestInfo) -> bool:
    """Whether a request writes one or more objects."""
    return info.type is not None and info.verb in WRITES and info.subresource not in NO_WRITES


def _doubt(info: RequestInfo) -> Doubt | None:
    """Return the unknown state that a write in flight causes; None for a request that writes no object."""
    ref = ObjectRef.of(info) if is_write(info) else None
    return Doubt(ref, info.verb == "create" and not info.name) if ref is not None else None


def _is_repeated(info: RequestInfo) -> bool:
    """Whether the client will repeat the write, and the hub accepts it offline: a status or an event."""
    return is_status_write(info) or is_event(info)
