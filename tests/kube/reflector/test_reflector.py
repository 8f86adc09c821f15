"""The reflector: what it asks, in which pages, what it makes of a refusal, and how it ends."""

from __future__ import annotations

import gc
import logging
import time
from types import AsyncGeneratorType, CoroutineType

import pytest

from kube.concurrency.backoff import Backoff
from kube.errors import REFUSALS
from kube.reflector import list_pages
from kube.reflector.reflector import UNSERVED_DELAY
from kube.reflector.state import State
from kube.store.store import Change, Store
from kube.wire.codec import WatchFrame, codec_for
from kube.wire.encoding import Encoding
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable import faults as fault
from tests.cloud.scriptable.request_log import matching
from tests.kube.support.reflecting import LISTS, WATCHES, Start, copied, equal, queries, service, until
from tests.kube.support.toys import RecordedInputs, Toy

# -- what it asks --------------------------------------------------------------------------------------------------


async def test_a_watch_that_waits_holds_no_event(
    cloud: ScriptableCloud, start: Start, encoding: Encoding
) -> None:
    """An event has megabytes, a node hundreds of watches, and the next event may come in an hour."""

    def held_by(holder: object) -> list[object]:
        """The references to the text above that an event, or the frame of a waiting coroutine, holds."""
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
async def test_it_lists_once_then_watches_from_there(
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


async def test_selectors_and_the_namespace_are_the_clouds_to_evaluate(
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


async def test_a_store_that_is_complete_is_resumed_without_a_list(
    cloud: ScriptableCloud, start: Start
) -> None:
    made = cloud.store.create(service("x"))
    raw = Toy("x", "default", int(made["metadata"]["resourceVersion"])).raw(Encoding.JSON)
    store = Store()
    store.replace(codec_for(Encoding.JSON), "v1", "Service", cloud.store.version, [raw])
    cloud.store.create(service("y"))
    reflector = start(store)
    await until(reflector, store, lambda: len(store) == 2)
    assert (len(cloud.requests.where(LISTS)), reflector.lists) == (0, 0)


# -- pages ---------------------------------------------------------------------------------------------------------


async def test_pages_that_expired_are_taken_all_at_once(
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
async def test_a_refusal_is_the_clouds_own_answer_until_it_changes_its_mind(
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


async def test_a_kind_that_the_cloud_does_not_have_is_no_fault_and_seldom_asked_for(
    cloud: ScriptableCloud, start: Start
) -> None:
    cloud.faults.add(fault.Refuse(404), times=None, when=LISTS)
    store = Store()
    reflector = start(store)
    states = set()
    while reflector.retry_at - time.monotonic() < UNSERVED_DELAY / 2:
        await reflector.changed.wait()
        states.add(reflector.state)
        assert reflector.error is None
    assert states == {State.LISTING, State.UNSERVED}
    # Who asks for the kind does not wait that long.
    cloud.faults.clear()
    reflector.retry_now()
    await until(reflector, store, copied(reflector, store, cloud))


async def test_a_permission_that_is_taken_away_is_a_refusal_and_then_a_list(
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


# -- itself --------------------------------------------------------------------------------------------------------


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


async def test_failures_of_an_outage_do_not_hold_up_what_the_cloud_answers_after_it(
    cloud: ScriptableCloud, start: Start
) -> None:
    """A restarted kube-apiserver fails like this: its watch cache has forgotten the version to resume from."""
    outage = cloud.faults.add(fault.Refuse(503), times=None)
    store = Store()
    # A second failure in a row is waited out for an hour.
    reflector = start(store, backoff=Backoff(0.005, 3600.0, jitter=lambda: 0.0, clock=lambda: 0.0))
    reflector._backoff._delay = 3600.0
    await until(reflector, store, lambda: reflector.state is State.WAITING)
    outage.lift()
    cloud.faults.add(fault.Refuse(410), when=LISTS)
    reflector.recovered()
    await until(reflector, store, copied(reflector, store, cloud))
    assert reflector.lists == 3


@pytest.mark.parametrize("error", [RuntimeError("a bug"), OSError("no space left")], ids=["bug", "disk"])
async def test_a_listener_that_fails_stops_nothing_and_costs_a_list(
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


async def test_after_a_list_and_an_outage_it_says_where_the_cloud_is(
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


async def test_a_store_that_is_disproved_is_listed_anew_at_once(cloud: ScriptableCloud, start: Start) -> None:
    cloud.store.create(service("web"))
    store = Store()
    reflector = start(store)
    await until(reflector, store, lambda: reflector.state is State.WATCHING)
    reflector.disprove()
    await until(reflector, store, lambda: reflector.lists == 2 and reflector.state is State.WATCHING)
    assert equal(store, cloud)
