"""The reflector with a cloud that misbehaves on command: it lists when it must and resumes when it can."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from aiohttp import web

from kube.errors import StatusError
from kube.http.client import TooLarge, Unreachable
from kube.http.retry_after import MAX_RETRY_AFTER
from kube.reflector import list_pages
from kube.reflector import reflector as reflector_module
from kube.reflector.list_pages import Malformed
from kube.reflector.state import State
from kube.store.store import Store
from kube.wire.encoding import Encoding
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable import faults as fault
from tests.cloud.scriptable.request_log import LoggedRequest
from tests.kube.support.reflecting import LISTS, WATCHES, Start, copied, equal, service, until
from tests.kube.support.serving import serving
from tests.kube.support.toys import RecordedInputs

# -- faults --------------------------------------------------------------------------------------------------------

RESUMED = {
    "lost between frames": fault.LostWatch(1),
    "torn frame": fault.TornFrame(),
    "torn second frame": fault.TornFrame(1),
    "ended after an event": fault.ShortWatch(1),
    "ended at once": fault.ShortWatch(0),
    "429": fault.Refuse(429, retry_after=1),
    "500": fault.Refuse(500),
    "404 of a gateway, for Services": fault.Refuse(404),
    "503": fault.Refuse(503),
    "504": fault.Refuse(504),
}
LISTED_ANEW = {
    "410 as an event": fault.ExpiredWatch(),
    "410 by HTTP": fault.Refuse(410),
    "malformed frame": fault.MalformedFrame(),
    "malformed second frame": fault.MalformedFrame(1),
    "403": fault.Refuse(403),
}


@pytest.mark.parametrize(
    ("what", "lists"),
    [(what, 1) for what in RESUMED.values()] + [(what, 2) for what in LISTED_ANEW.values()],
    ids=[*RESUMED, *LISTED_ANEW],
)
async def test_a_watch_that_fails_is_resumed_or_listed_again(
    cloud: ScriptableCloud, start: Start, encoding: Encoding, what: fault.Fault, lists: int
) -> None:
    cloud.store.create(service("x"))
    rule = cloud.faults.add(what, when=WATCHES)
    store = Store()
    recorder = RecordedInputs(store)
    reflector = start(store, encoding=encoding)
    await until(reflector, store, lambda: reflector.state is not State.STOPPED and store.complete)
    for name in ("y", "z"):
        cloud.store.create(service(name))
    cloud.store.delete("services", "x", "default")
    await until(
        reflector,
        store,
        lambda: copied(reflector, store, cloud)() and rule.used == 1 and reflector.watches > 1,
    )
    cloud.store.create(service("last"))
    await until(reflector, store, lambda: equal(store, cloud))
    assert (len(cloud.requests.where(LISTS)), cloud.requests.count(verb="watch")) == (lists, 2)
    assert (reflector.lists, reflector.watches) == (lists, 2)
    # No event was repeated, none was missed.
    versions = [change.version for change in recorder.changes]
    assert versions == sorted(versions)
    names = [(change.key[1], change.new is not None) for change in recorder.changes]
    assert sorted(names) == [("last", True), ("x", False), ("y", True), ("z", True)]


@pytest.mark.parametrize("which", [LISTS, WATCHES], ids=["list", "watch"])
async def test_a_request_whose_connection_is_closed_without_a_response_is_retried(
    cloud: ScriptableCloud, start: Start, which: Callable[[LoggedRequest], bool]
) -> None:
    """Closed twice, as aiohttp itself repeats a GET once."""
    cloud.store.create(service("x"))
    rule = cloud.faults.add(fault.Disconnect(), times=2, when=which)
    store = Store()
    reflector = start(store)
    await until(reflector, store, lambda: isinstance(reflector.error, Unreachable))
    await until(reflector, store, copied(reflector, store, cloud))
    assert rule.used == 2
    assert len(cloud.requests.where(which)) == 3
    assert reflector.lists + reflector.watches == 3


@pytest.mark.parametrize("what", [fault.MalformedBody(), fault.TruncatedBody()], ids=["malformed", "torn"])
async def test_a_failed_relist_leaves_the_copy_unchanged(
    cloud: ScriptableCloud, start: Start, what: fault.Fault
) -> None:
    cloud.store.create(service("x"))
    cloud.faults.add(fault.ExpiredWatch(), when=WATCHES)
    # The first list succeeds, the next three fail.
    first = cloud.faults.add(fault.Delay(0.0), when=LISTS)
    bad = cloud.faults.add(what, times=3, when=lambda each: LISTS(each) and first.used > 0)
    store = Store()
    recorder = RecordedInputs(store)
    reflector = start(store)
    await until(reflector, store, lambda: reflector.watches == 2)
    assert (bad.used, reflector.lists) == (3, 5)
    assert recorder.changes == []
    assert equal(store, cloud)


async def test_a_storm_of_410_lists_each_time_and_notifies_nothing(
    cloud: ScriptableCloud, start: Start
) -> None:
    cloud.store.create(service("x"))
    cloud.faults.add(fault.ExpiredWatch(), times=4, when=WATCHES)
    store = Store()
    recorder = RecordedInputs(store)
    reflector = start(store)
    await until(reflector, store, lambda: reflector.watches == 5 and reflector.state is State.WATCHING)
    assert (reflector.lists, recorder.changes) == (5, [])


async def test_changes_hidden_by_a_compaction_are_notified_as_differences(
    cloud: ScriptableCloud, start: Start
) -> None:
    for name in ("same", "changed", "gone"):
        cloud.store.create(service(name))
    store = Store()
    reflector = start(store)
    await until(reflector, store, copied(reflector, store, cloud))
    recorder = RecordedInputs(store)
    await cloud.stop()
    cloud.store.put(service("changed", app="web"))
    cloud.store.delete("services", "gone", "default")
    cloud.store.create(service("new"))
    cloud.store.compact()
    await cloud.start()
    await until(reflector, store, lambda: equal(store, cloud))
    assert sorted(change.key[1] for change in recorder.changes) == ["changed", "gone", "new"]
    assert reflector.lists == 2


async def test_versions_that_go_backwards_restart_the_store(cloud: ScriptableCloud, start: Start) -> None:
    cloud.store.create(service("x"))
    backup = cloud.store.snapshot()
    cloud.store.create(service("y"))
    store = Store()
    reflector = start(store)
    await until(reflector, store, copied(reflector, store, cloud))
    recorder = RecordedInputs(store)
    # kube-apiserver accepts a watch from a future version and sends nothing; only a list shows what happened.
    cloud.faults.add(fault.ExpiredWatch(), when=WATCHES)
    cloud.store.restore(backup)
    await until(reflector, store, lambda: equal(store, cloud))
    assert recorder.heard[-1] == f"restarted at {backup.version}"
    assert store.version == backup.version


async def test_a_watch_that_stalls_beyond_its_timeout_is_reopened(
    cloud: ScriptableCloud, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reflector_module, "WATCH_SECONDS", (0.05, 0.05))
    monkeypatch.setattr(reflector_module, "WATCH_MARGIN", 0.05)
    rule = cloud.faults.add(fault.StalledWatch(), when=WATCHES)
    store = Store()
    reflector = start(store)
    await until(reflector, store, lambda: store.complete and rule.used == 1)
    cloud.store.create(service("x"))
    await until(reflector, store, lambda: equal(store, cloud))
    assert (rule.used, reflector.lists, reflector.watches > 1) == (1, 1, True)


# -- odd servers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("text/html", b"<html>log in</html>"),
        ("", b"<html>log in</html>"),
        ("application/yaml", b"kind: ServiceList"),
        ("application/json", b'{"kind":"Service","apiVersion":"v1"}'),
    ],
)
async def test_a_response_that_is_no_list_is_malformed(start: Start, content_type: str, body: bytes) -> None:
    """A captive portal answers 200 to everything."""

    async def handler(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=body, headers={"Content-Type": content_type})

    async with serving(handler) as url:
        store = Store()
        reflector = start(store, url=url)
        await until(reflector, store, lambda: isinstance(reflector.error, Malformed))
    assert (store.complete, reflector.refusal) == (False, None)
    assert reflector.error is not None
    assert (reflector.error.__traceback__, reflector.error.__context__) == (None, None)  # they contain a list


async def test_a_retry_after_of_years_delays_the_next_attempt_by_minutes_only(start: Start) -> None:
    error = b'{"kind":"Status","apiVersion":"v1","code":429,"details":{"retryAfterSeconds":2147483647}}'

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        listed = b'{"kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}'
        event = b'{"type":"ERROR","object":%s}\n' % error
        body = event if "watch" in request.query else listed
        return web.Response(body=body, content_type="application/json")

    async with serving(handler) as url:
        store = Store()
        reflector = start(store, url=url)
        await until(reflector, store, lambda: reflector.state is State.WAITING)
        assert isinstance(reflector.error, StatusError), reflector.error
        assert reflector.retry_at - time.monotonic() <= 2 * MAX_RETRY_AFTER


@pytest.mark.parametrize(("ahead", "lists", "restored"), [(0, 2, False), (10, 2, True)])
async def test_a_copy_that_is_ahead_of_its_own_resource_is_listed_again(
    ahead: int, lists: int, restored: bool, cloud: ScriptableCloud, start: Start
) -> None:
    store, called = Store(), asyncio.Event()
    reflector = start(store)
    reflector.restored = called.set
    await until(reflector, store, lambda: reflector.state is State.WATCHING)
    store.given_version = cloud.store.version + ahead
    reflector.verify()
    await asyncio.sleep(0)
    cloud.store.create(service("later"))
    await until(reflector, store, lambda: reflector.watches == 2 and equal(store, cloud))
    assert (reflector.lists, called.is_set()) == (lists, restored)


async def test_a_copy_waiting_for_a_new_list_is_marked_as_unverified_too(
    cloud: ScriptableCloud, start: Start
) -> None:
    """The copy's watch had ended with 410, and another source detected another history before the list."""
    store = Store()
    reflector = start(store)
    await until(reflector, store, copied(reflector, store, cloud))
    await cloud.stop()
    cloud.faults.add(fault.Refuse(410), when=WATCHES)
    cloud.faults.add(
        fault.Refuse(500), when=lambda request: LISTS(request) and "limit=1" not in request.query
    )
    await cloud.start()
    await until(reflector, store, lambda: reflector.lists == 2)
    reflector.verify()
    assert (store.complete, store.may_be_shown) == (True, False)


async def test_a_list_with_endless_pages_is_aborted(
    cloud: ScriptableCloud, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_pages, "PAGE", 2)
    for number in range(20):
        cloud.store.create(service(f"at-{number}", text="x" * 100))
    monkeypatch.setattr(list_pages, "MAX_LIST", 3000)
    store = Store()
    reflector = start(store)
    await until(reflector, store, lambda: isinstance(reflector.error, TooLarge))
    assert cloud.requests.count(verb="list", resource="services") < 10
    assert not store.complete
    monkeypatch.undo()
    await until(reflector, store, copied(reflector, store, cloud))
