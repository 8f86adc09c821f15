"""Events of an open watch become messages of its flow: decoded, bounded, and with the cloud's event beside them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import yaml
from mitmproxy import http
from mitmproxy.test import tflow
from mitmproxy.websocket import WebSocketMessage

from addons.ui.flows import live_watches
from addons.ui.flows.bodies import ByteBudget
from addons.ui.flows.flow_records import FilteredRead
from addons.ui.flows.live_watches import (
    MAX_ALL,
    MAX_EVENT,
    MAX_EVENTS,
    MAX_WAITING,
    MAX_WATCH,
    Display,
    LiveWatch,
)
from addons.ui.masking import DEFAULT_VISIBILITY, Visible
from kube.schemas.published import messages
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from tests.addons.support.filtered_view import fill, services
from tests.addons.support.hub_world import HubWorld
from tests.addons.support.samples import cloud_service, raw, service
from tests.cloud.scriptable import ScriptableCloud
from tests.kube.support import recorded

JSON = codec_for(Encoding.JSON)
messages()  # an interface has loaded the schemas before it shows a watch


class Shown:
    """A flow, with the number of notifications to its interface."""

    def __init__(
        self,
        encoding: Encoding = Encoding.JSON,
        filtered: FilteredRead | None = None,
        visible: Visible = DEFAULT_VISIBILITY,
    ) -> None:
        self.flow = tflow.tflow(resp=True)
        self.changed = asyncio.Event()
        self.total = ByteBudget(MAX_ALL)
        display = Display(self._tell, self.total, visible)
        self.watch = LiveWatch(self.flow, codec_for(encoding), True, display, filtered=filtered)

    def _tell(self, flow: http.HTTPFlow) -> None:
        assert flow is self.flow
        self.changed.set()

    @property
    def messages(self) -> list[WebSocketMessage]:
        assert self.flow.websocket is not None
        return self.flow.websocket.messages

    @property
    def texts(self) -> list[str]:
        return [each.content.decode() for each in self.messages]

    def pass_on(self, piece: bytes) -> list[bytes]:
        passed = self.watch(piece)
        return [passed] if isinstance(passed, bytes) else list(passed)

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not true():
                self.changed.clear()
                await self.changed.wait()


def event(number: int, size: int = 0) -> bytes:
    made = service(f"web-{number}", number, annotations={"x": "y" * size} if size else {})
    return JSON.encode_event("ADDED", "v1", "Service", raw(made))


@pytest.mark.parametrize("encoding", Encoding)
async def test_each_event_is_shown_when_it_is_sent(encoding: Encoding) -> None:
    """The event may be split anywhere; the hub passes on exactly the received bytes."""
    body = recorded.body("services.initial", encoding)
    frames = codec_for(encoding).frames().feed(body)
    shown = Shown(encoding)
    passed = b"".join(piece for at in range(0, len(body), 7) for piece in shown.pass_on(body[at : at + 7]))
    assert passed == body
    await shown.until(lambda: len(shown.messages) == len(frames))
    for frame, text in zip(frames, shown.texts, strict=True):
        assert text.startswith("# edgehub: ")
        assert "the component got" in text
        found = yaml.safe_load(text)
        assert (found["type"], found["bytes"]) == (frame.type, len(frame.raw))
    assert all(not each.from_client and each.is_text for each in shown.messages)


async def test_the_last_events_stay_and_evicted_ones_are_counted() -> None:
    shown = Shown()
    count = MAX_EVENTS + 150
    shown.watch(b"".join(map(event, range(1, count + 1))))
    await shown.until(lambda: bool(shown.texts) and f"web-{count}" in shown.texts[-1])
    assert len(shown.messages) == MAX_EVENTS
    assert "after 150 that are not shown" in shown.texts[0]
    shown.watch(event(count + 1))
    await shown.until(lambda: f"web-{count + 1}" in shown.texts[-1])
    assert len(shown.messages) == MAX_EVENTS
    assert shown.total.taken == sum(len(each.content) for each in shown.messages)


async def test_a_long_event_is_abbreviated() -> None:
    shown = Shown()
    shown.watch(event(1, 2 * MAX_EVENT))
    await shown.until(lambda: len(shown.messages) == 1)
    assert "object: default/web-1" in shown.texts[0]
    assert len(shown.texts[0]) < 1_000


async def test_the_messages_of_one_watch_are_bounded() -> None:
    """With long events, less than MAX_EVENTS of them stay."""
    shown = Shown()
    count = 2 * MAX_WATCH // MAX_EVENT
    shown.watch(b"".join(event(number, MAX_EVENT - 1_000) for number in range(1, count + 1)))
    await shown.until(lambda: bool(shown.texts) and f"web-{count}" in shown.texts[-1])
    assert len(shown.messages) < min(count, MAX_EVENTS)
    assert sum(len(each.content) for each in shown.messages) <= MAX_WATCH


async def test_the_messages_of_all_watches_are_bounded() -> None:
    shown = Shown()
    shown.total.taken = MAX_ALL
    shown.watch(event(1) + event(2) + event(3))
    await shown.until(lambda: bool(shown.texts) and "web-3" in shown.texts[-1])
    assert len(shown.messages) == 1
    shown.watch.removed()
    assert shown.total.taken == MAX_ALL


async def test_a_malformed_event_ends_the_display_and_not_the_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = Shown()
    shown.watch(event(1))
    assert list(shown.watch(b"no event\n")) == [b"no event\n"]
    assert list(shown.watch(event(2))) == [event(2)]
    shown.watch.end(by_client=True)
    assert "no event can be read any more" in shown.texts[0]
    assert len(shown.messages) == 2
    monkeypatch.setattr(live_watches, "MAX_WAITING", 1_000)
    large = Shown()
    large.watch(b" " * (MAX_WAITING // 1_000))
    assert "too large to be shown" in large.texts[0]


async def test_the_end_of_a_watch_shows_pending_events_and_who_ended_it() -> None:
    shown = Shown()
    shown.watch(event(1) + event(2))
    shown.watch.end(by_client=True)
    assert len(shown.messages) == 2
    assert shown.flow.websocket is not None
    assert shown.flow.websocket.closed_by_client is True
    assert shown.flow.websocket.timestamp_end is not None
    shown.watch(event(3))
    assert len(shown.messages) == 2


async def test_no_value_of_a_secret_is_shown() -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"k": "c2VjcmV0"}}
    frame = JSON.encode_event("ADDED", "v1", "Secret", raw(secret))
    for show, said in ((False, "k: (hidden, 8 characters)"), (True, "k: c2VjcmV0")):
        shown = Shown(visible=Visible(secrets=show))
        shown.watch(frame)
        shown.watch.end(by_client=False)
        assert said in shown.texts[0]


async def test_an_event_of_the_cloud_is_shown_if_the_component_got_another(
    parts: HubWorld, cloud: ScriptableCloud
) -> None:
    fill(cloud)
    record, _ = await services(parts)
    shown = Shown(filtered=record.filtered)
    cloud.store.create(service("kept"))
    cloud.store.create(cloud_service("hidden"))
    await shown.until(lambda: len(shown.messages) == 1)
    (message,) = shown.messages
    assert message.from_client, "not what the component got"
    found = yaml.safe_load(shown.texts[0])
    assert (found["object"], found["outcome"], found["type"]) == ("default/hidden", "dropped", "ADDED")
    assert "its type is LoadBalancer" in found["why"]
    assert found["content"]["spec"]["type"] == "LoadBalancer"
    shown.watch.end(by_client=True)
    cloud.store.create(cloud_service("later"))
    cloud.store.create(service("kept-later"))
    (source,) = (each for each in parts.sources if each.list_watch.type.resource == "services")
    async with asyncio.timeout(20):
        while source.store.get(("default", "kept-later")) is None:
            await source.store.next_update()
    assert len(shown.messages) == 1
