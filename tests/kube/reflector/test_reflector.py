"""The reflector: its requests, in pages or as differences, its handling of refusals, and its end."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Sequence
from types import AsyncGeneratorType, CoroutineType

import pytest
from aiohttp import web

from kube.concurrency.backoff import Backoff
from kube.differences.reader import UnusableRecord
from kube.differences.records import CODING, Former, event_record, plain_record
from kube.errors import REFUSALS
from kube.http.zstd_bodies import pack
from kube.reflector import list_pages
from kube.reflector.list_pages import Malformed
from kube.reflector.reflector import UNSERVED_RETRY_DELAY
from kube.reflector.state import State
from kube.store.store import Change, Store
from kube.wire.codec import WatchFrame, codec_for
from kube.wire.codec_base import ListMeta
from kube.wire.encoding import Encoding
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable import faults as fault
from tests.cloud.scriptable.request_log import matching
from tests.kube.support.reflecting import (
    LISTS,
    PATIENCE,
    WATCHES,
    Start,
    copied,
    equal,
    queries,
    service,
    until,
)
from tests.kube.support.serving import serving
from tests.kube.support.toys import RecordedInputs, Toy

# -- requests ------------------------------------------------------------------------------------------------------


async def test_a_waiting_watch_refers_to_no_event(
    cloud: ScriptableCloud, start: Start, encoding: Encoding
) -> None:
    """An event may have megabytes, a node has hundreds of watches, and the next event may arrive in an hour."""

    def held_by(holder: object) -> list[object]:
        """Return the references to the above text from an event, or from the frame of a waiting coroutine."""
        match holder:
            case WatchFrame():
                held: list[object] = list(holder)
            case CoroutineType(cr_frame=frame) | AsyncGeneratorType(ag_frame=frame) if frame is not None:
                is_clouds = "/tests/" in frame.f_code.co_filename
                held = [] if is_clouds else list(frame.f_locals.values())
            case _:
                return []
        return [each for each in held if isinstance(each, bytes) and b"held by nobody" in each]

    store = Store()
    reflector = start(store, encoding=encoding)
    await until(reflector, store, copied(reflector, store, cloud))
    cloud.store.create(service("x", text="held by nobody"))
    await until(reflector, store, lambda: equal(store, cloud))
    assert list(filter(None, map(held_by, gc.get_objects()))) == []


@pytest.mark.parametrize("metadata_only", [False, True], ids=["whole", "metadata"])
async def test_a_reflector_lists_once_and_then_watches_from_that_version(
    cloud: ScriptableCloud, start: Start, encoding: Encoding, metadata_only: bool
) -> None:
    cloud.store.create(service("x", app="web"))
    store = Store()
    reflector = start(store, encoding=encoding, metadata_only=metadata_only)
    assert reflector.state is State.STOPPED
    await until(reflector, store, copied(reflector, store, cloud))
    version = store.version
    assert (store.codec.encoding, reflector.error) == (encoding, None)
    assert store.kind == ("PartialObjectMetadata" if metadata_only else "Service")
    cloud.store.put(service("x", app="db"))
    cloud.store.create(service("y"))
    await until(reflector, store, lambda: equal(store, cloud))
    cloud.store.delete("services", "x", "default")
    await until(reflector, store, lambda: equal(store, cloud))
    assert [item.labels for item in store] == [{}]
    lists = matching(verb="list", resource="services")
    assert queries(cloud, lists) == [{"limit": str(list_pages.PAGE)}]
    (query,) = queries(cloud, WATCHES)
    assert 300 <= int(query.pop("timeoutSeconds")) <= 600
    assert query == {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": str(version)}
    assert (reflector.lists, reflector.watches) == (1, 1)


async def test_selectors_and_the_namespace_are_sent_to_the_cloud(
    cloud: ScriptableCloud, start: Start
) -> None:
    cloud.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}})
    for name, app in (("x", "web"), ("y", "web"), ("z", "db")):
        cloud.store.create(service(name, "a", app=app))
    cloud.store.create(service("x", "default", app="web"))
    store = Store()
    reflector = start(store, namespace="a", label_selector="app=web", field_selector="metadata.name!=y")
    await until(reflector, store, lambda: reflector.state is State.WATCHING)
    assert [item.key for item in store] == [("a", "x")]
    cloud.store.put(service("z", "a", app="web"))
    await until(reflector, store, lambda: len(store) == 2)
    cloud.store.put(service("x", "a", app="db"))
    await until(reflector, store, lambda: [item.key for item in store] == [("a", "z")])
    for query in (*queries(cloud, LISTS), *queries(cloud, WATCHES)):
        assert (query["labelSelector"], query["fieldSelector"]) == ("app=web", "metadata.name!=y")


async def test_a_complete_store_is_resumed_without_a_list(cloud: ScriptableCloud, start: Start) -> None:
    made = cloud.store.create(service("x"))
    raw = Toy("x", "default", int(made["metadata"]["resourceVersion"])).raw(Encoding.JSON)
    store = Store()
    store.replace(codec_for(Encoding.JSON), "v1", "Service", cloud.store.version, [raw])
    cloud.store.create(service("y"))
    reflector = start(store)
    await until(reflector, store, lambda: len(store) == 2)
    assert (len(cloud.requests.where(LISTS)), reflector.lists) == (0, 0)


# -- pages ---------------------------------------------------------------------------------------------------------


async def test_a_list_with_expired_pages_is_read_in_one_piece(
    cloud: ScriptableCloud, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_pages, "PAGE", 2)
    for number in range(5):
        cloud.store.create(service(f"x{number}"))
    cloud.faults.add(fault.Refuse(410), when=lambda request: "continue=" in request.query)
    store = Store()
    reflector = start(store, label_selector="!none")
    await until(reflector, store, copied(reflector, store, cloud))
    first, second, third = queries(cloud, LISTS)
    assert (set(first), set(second)) == ({"limit", "labelSelector"}, {"limit", "continue", "labelSelector"})
    assert third == {"labelSelector": "!none"}
    assert reflector.lists == 1


# -- refusals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", sorted(REFUSALS))
async def test_a_refusal_is_stored_until_the_cloud_permits_the_list(
    cloud: ScriptableCloud, start: Start, encoding: Encoding, code: int
) -> None:
    message = 'services is forbidden: User "system:node:n" cannot list resource "services"'
    rule = cloud.faults.add(fault.Refuse(code, message=message), times=None, when=LISTS)
    store = Store()
    reflector = start(store, encoding=encoding)
    state = State.UNSERVED if code == 404 else State.REFUSED
    await until(reflector, store, lambda: reflector.state is state)
    refusal = reflector.refusal
    assert refusal is not None
    assert (refusal.code, refusal.message) == (code, message)
    assert not store.complete
    rule.lift()
    await until(reflector, store, copied(reflector, store, cloud))
    assert (reflector.refusal, reflector.error) == (None, None)


async def test_a_missing_kind_is_no_error_and_is_requested_rarely(
    cloud: ScriptableCloud, start: Start
) -> None:
    cloud.faults.add(fault.Refuse(404), times=None, when=LISTS)
    store = Store()
    reflector = start(store)
    states = set()
    while reflector.retry_at - time.monotonic() < UNSERVED_RETRY_DELAY / 2:
        await reflector.changed.wait()
        states.add(reflector.state)
        assert reflector.error is None
    assert states == {State.LISTING, State.UNSERVED}
    # A client that requests the kind does not wait that long.
    cloud.faults.clear()
    reflector.retry_now()
    await until(reflector, store, copied(reflector, store, cloud))


async def test_a_revoked_permission_is_a_refusal_and_then_a_list(
    cloud: ScriptableCloud, start: Start
) -> None:
    cloud.store.create(service("x"))
    store = Store()
    reflector = start(store)
    await until(reflector, store, copied(reflector, store, cloud))
    rule = cloud.faults.add(fault.Refuse(403), times=None, when=matching(resource="services"))
    await cloud.stop()
    await cloud.start()
    await until(reflector, store, lambda: reflector.refusal is not None)
    cloud.store.delete("services", "x", "default")
    cloud.store.compact()
    rule.lift()
    await until(reflector, store, copied(reflector, store, cloud))
    assert len(store) == 0


# -- robustness ----------------------------------------------------------------------------------------------------


async def test_retry_now_cuts_the_backoff_short(cloud: ScriptableCloud, start: Start) -> None:
    def slow_backoff() -> Backoff:
        """A first delay of 5 ms that jitter makes 500 s."""
        return Backoff(0.005, 0.005, jitter=lambda: 100_000.0)

    cloud.faults.add(fault.Refuse(503), when=LISTS)
    store = Store()
    reflector = start(store, backoff=slow_backoff())
    await until(reflector, store, lambda: reflector.state is State.WAITING)
    reflector.retry_now()
    await until(reflector, store, copied(reflector, store, cloud))
    assert reflector.lists == 2


async def test_failures_during_an_outage_do_not_delay_requests_after_it(
    cloud: ScriptableCloud, start: Start
) -> None:
    """A restarted kube-apiserver fails this way: its watch cache lacks the version to resume from."""
    outage = cloud.faults.add(fault.Refuse(503), times=None)
    store = Store()
    # A second consecutive failure has a backoff of an hour.
    reflector = start(store, backoff=Backoff(0.005, 3600.0, jitter=lambda: 0.0, clock=lambda: 0.0))
    reflector._backoff._delay = 3600.0
    await until(reflector, store, lambda: reflector.state is State.WAITING)
    outage.lift()
    cloud.faults.add(fault.Refuse(410), when=LISTS)
    reflector.recovered()
    await until(reflector, store, copied(reflector, store, cloud))
    assert reflector.lists == 3


@pytest.mark.parametrize("error", [RuntimeError("a bug"), OSError("no space left")], ids=["bug", "disk"])
async def test_a_failing_listener_causes_a_list_and_stops_nothing(
    cloud: ScriptableCloud, start: Start, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    class Clumsy(RecordedInputs):
        """A listener that fails once."""

        def __init__(self, store: Store, error: Exception) -> None:
            super().__init__(store)
            self._errors = [error]

        def changed(self, change: Change) -> None:
            if self._errors:
                raise self._errors.pop()

    store = Store()
    Clumsy(store, error)
    reflector = start(store)
    with caplog.at_level(logging.ERROR, "kube.reflector.reflector"):
        await until(reflector, store, copied(reflector, store, cloud))
        cloud.store.create(service("x"))
        await until(reflector, store, lambda: reflector.error is not None)
        await until(reflector, store, copied(reflector, store, cloud))
    cloud.store.create(service("y"))
    await until(reflector, store, lambda: equal(store, cloud))
    assert "the reflector failed" in caplog.text
    assert reflector.lists == 2


async def test_after_a_list_and_an_outage_the_store_has_the_clouds_version(
    cloud: ScriptableCloud, start: Start
) -> None:
    notified: list[int] = []
    cloud.store.create(service("web"))
    store = Store()
    reflector = start(store)
    reflector.reached = notified.append
    await until(reflector, store, lambda: reflector.state is State.WATCHING)
    assert notified == [cloud.store.version]
    await cloud.stop()
    await until(reflector, store, lambda: reflector.state is State.WAITING)
    await cloud.start()
    await until(reflector, store, lambda: reflector.state is State.WATCHING)
    assert notified == [cloud.store.version] * 2


async def test_a_disproved_store_is_listed_again_at_once(cloud: ScriptableCloud, start: Start) -> None:
    cloud.store.create(service("web"))
    store = Store()
    reflector = start(store)
    await until(reflector, store, lambda: reflector.state is State.WATCHING)
    reflector.disprove()
    await until(reflector, store, lambda: reflector.lists == 2 and reflector.state is State.WATCHING)
    assert equal(store, cloud)


# -- differences ---------------------------------------------------------------------------------------------------


CODEC = codec_for(Encoding.JSON)
LIST = CODEC.encode_list("v1", "Service", ListMeta(10), [Toy("x", version=10).raw(Encoding.JSON)])
NAMES = CODEC.encode_list("v1", "Service", ListMeta(20), [Toy("x", version=11).raw(Encoding.JSON)])
(BEFORE,) = CODEC.decode_list(bytes(LIST)).items
AFTER = Toy("x", version=11, address="10.0.0.2").raw(Encoding.JSON)
EVENT = CODEC.encode_event("MODIFIED", "v1", "Service", AFTER)
FITS = event_record(EVENT, Former("a", "x", 10, BEFORE))
MISFITS = {
    "another version": event_record(EVENT, Former("a", "x", 9, BEFORE)),
    "damaged": FITS[:-1] + bytes([FITS[-1] ^ 1]),
    "oversized": b"\xff" + FITS[1:],
    "cut off": FITS[:-1],
    "no record": b"<html>log in</html>",
}


class Server:
    """A server with a list of one object. It answers each watch with the next of several streams; the last one stays
    open."""

    def __init__(self, *streams: Sequence[bytes]) -> None:
        self.watches: list[tuple[str, str]] = []
        """Version and requested codings of each watch."""
        self.lists = 0
        self.last = asyncio.Event()
        """Set when the last stream is requested."""
        self._streams = list(streams)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        codings = request.headers["Accept-Encoding"]
        if "as=PartialObjectMetadataList" in request.headers["Accept"]:
            return web.Response(body=bytes(NAMES), headers={"Content-Type": CODEC.content_type})
        if "watch" not in request.query:
            self.lists += 1
            assert "zstd" in codings.split(",")
            headers = {"Content-Type": CODEC.content_type, "Content-Encoding": "zstd"}
            return web.Response(body=b"".join(pack(LIST, LIST.size)), headers=headers)
        self.watches.append((request.query["resourceVersion"], codings))
        stream = self._streams.pop(0)
        headers = {"Content-Type": CODEC.watch_content_type}
        if CODING in codings.split(","):
            headers["Content-Encoding"] = CODING
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        for piece in stream:
            await response.write(piece)
        if not self._streams:
            self.last.set()
            await asyncio.Event().wait()
        return response


async def test_a_list_in_zstd_and_differences_to_it_are_followed(start: Start) -> None:
    server = Server([FITS[:7], FITS[7:], plain_record(CODEC.encode_bookmark("v1", "Service", 20))])
    async with serving(server.answer) as url:
        store = Store()
        heard = RecordedInputs(store)
        reflector = start(store, url=url)
        await until(reflector, store, lambda: store.version == 20)
    assert heard.heard == ["at 10", (11, ("a", "x"), 10, 11), "at 20"]
    assert [CODEC.peek(item.raw).version for item in store] == [11]


@pytest.mark.parametrize("misfit", MISFITS.values(), ids=MISFITS.keys())
async def test_after_a_difference_that_does_not_fit_the_next_watch_is_plain(
    start: Start, misfit: bytes
) -> None:
    """Nothing is listed again, and nothing is lost."""
    bookmark = CODEC.encode_bookmark("v1", "Service", 20)
    server = Server([misfit], [EVENT, bookmark], [plain_record(bookmark)])
    async with serving(server.answer) as url:
        store = Store()
        heard = RecordedInputs(store)
        reflector = start(store, url=url)
        await until(reflector, store, lambda: isinstance(reflector.error, UnusableRecord))
        await until(reflector, store, lambda: store.version == 20)
        async with asyncio.timeout(PATIENCE):
            await server.last.wait()
    assert heard.heard == ["at 10", (11, ("a", "x"), 10, 11), "at 20"]
    both = f"{CODING},gzip"
    assert server.watches == [("10", both), ("10", "gzip"), ("20", both)]
    assert server.lists == 1


async def test_a_coding_that_was_not_requested_is_malformed(start: Start) -> None:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.Response(body=bytes(LIST), content_type="application/json")
        return web.Response(headers={"Content-Type": "application/json", "Content-Encoding": "br"})

    async with serving(answer) as url:
        store = Store()
        reflector = start(store, url=url)
        await until(reflector, store, lambda: isinstance(reflector.error, Malformed))
