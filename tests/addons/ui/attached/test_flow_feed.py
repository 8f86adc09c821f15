"""The feed of flows to an attached process, and the process's decisions about intercepted flows."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import orjson
import pytest
from mitmproxy.http import HTTPFlow
from mitmproxy.io import tnetstring
from mitmproxy.test import taddons, tflow, tutils

from addons.link.drills import Drills
from addons.requests.request_context import begin
from addons.requests.route_decision import Route, RouteKind
from addons.settings import Settings
from addons.telemetry import metrics
from addons.ui.attached.attachments import Attachments
from addons.ui.attached.flow_feed import HOLD_TIME, MAX_FEED_BYTES, MAX_FLOWS, MAX_HELD, FlowFeed
from addons.ui.commands.attached_flows import AttachedFlows, records
from addons.ui.flows.bodies import ByteBudget
from addons.ui.flows.flows import Flows
from addons.ui.masking import DEFAULT_VISIBILITY
from kube.errors import StatusError
from tests.addons.support.routed import NoAnswerer
from tests.addons.support.samples import SERVICES, request_context


@pytest.fixture(autouse=True)
def master() -> Iterator[None]:
    """A mitmproxy master without an interface."""
    with taddons.context():
        yield


class Settled(Flows):
    """Flows that are complete, and shown without secrets."""

    def is_settled(self, flow: HTTPFlow) -> bool:
        return True


def flows() -> Flows:
    return Settled(lambda: DEFAULT_VISIBILITY, Drills(), bool, bool, ByteBudget(0), ByteBudget(0))


def sent_records(feed: FlowFeed) -> list[dict[str, Any]]:
    found = b"".join(feed.next(made) for made in [flows()] * (MAX_FLOWS + 2))
    return list(records(io.BytesIO(found)))


def finished_flow(body: bytes = b"body") -> HTTPFlow:
    flow = tflow.tflow(resp=True)
    assert flow.response is not None
    flow.response.content, flow.live = body, False
    return flow


async def test_a_flow_that_changes_often_is_sent_once_in_its_latest_state() -> None:
    feed, flow, other = FlowFeed(), finished_flow(), finished_flow()
    for each in (flow, other, flow):
        feed.offer(each)
    flow.comment = "changed since"
    events = sent_records(feed)
    assert [each["flow"]["id"] for each in events] == [other.id, flow.id]
    assert events[1]["flow"]["comment"] == "changed since"
    assert (events[1]["live"], events[1]["is_watch"], events[1]["messages"]) == (False, False, [])


async def test_a_slow_attached_process_misses_the_oldest_flows_and_gets_their_number() -> None:
    counter = metrics.BOUNDS_REACHED.labels("flows for an attached process")
    before = counter._value.get()
    feed = FlowFeed()
    made = [finished_flow() for _ in range(MAX_FLOWS + 3)]
    for each in made:
        feed.offer(each)
    events = sent_records(feed)
    assert events[0] == {"dropped": 3}
    assert [each["flow"]["id"] for each in events[1:]] == [each.id for each in made[3:]]
    assert counter._value.get() - before == 3


async def test_large_bodies_are_bounded_together() -> None:
    feed = FlowFeed()
    for _ in range(6):
        feed.offer(finished_flow(b"x" * (MAX_FEED_BYTES // 4)))
    events = sent_records(feed)
    assert (events[0], len(events)) == ({"dropped": 3}, 4)


async def test_a_closed_feed_is_empty_and_notifies_its_waiter() -> None:
    feed = FlowFeed()
    feed.offer(finished_flow())
    feed.close()
    await feed.wait()
    assert feed.next(flows()) == b""


pytestmark = pytest.mark.looptime


class Scene:
    """A hub that intercepts flows, and the process attached to it."""

    def __init__(self) -> None:
        self.hub = Attachments(lambda: Settings(allow_hold=True), Drills())
        self.feed, self.flows = self.hub.attach()
        self.seen = AttachedFlows()
        self.holds = self.hub.holds_of(self.hub.key)
        self.holds.handle_command({"filter": "~all"})

    def request(
        self, target: str = SERVICES, body: bytes = b"sent", *, is_own: bool = False
    ) -> tuple[HTTPFlow, asyncio.Task[None]]:
        """Return a complete relayed request, and the hook that waits for the decision."""
        flow = tflow.tflow(req=tutils.treq(method=b"POST", path=target.encode(), content=body))
        context = request_context(target, method="POST")
        context.route, context.answerer = Route(RouteKind.RELAY, "because"), NoAnswerer() if is_own else None
        begin(flow, context)
        flow.live, flow.request.stream = True, lambda piece: piece
        self.hub.requestheaders(flow)
        return flow, asyncio.create_task(self.hub.request(flow))

    async def answer(self, flow: HTTPFlow, body: bytes = b"answered") -> asyncio.Task[None]:
        flow.response = tutils.tresp(content=body)
        flow.response.stream = lambda piece: piece
        self.hub.responseheaders(flow)
        return asyncio.create_task(self.hub.response(flow))

    async def held(self) -> HTTPFlow:
        """Return the next flow that is intercepted for the attached process."""
        while True:
            await self.feed.wait()
            for each in records(io.BytesIO(self.feed.next(self.flows))):
                if each.get("hold"):
                    return self.seen.apply_record(each).flow

    async def answered(self) -> tuple[HTTPFlow, HTTPFlow, asyncio.Task[None]]:
        """Return a flow with an intercepted response, as the process sees it, and the hook that waits."""
        flow, waits = self.request()
        self.let_go(await self.held())
        await waits
        answered = await self.answer(flow)
        return flow, await self.held(), answered

    def let_go(self, flow: HTTPFlow) -> None:
        flow.resume()
        self.decide(flow)

    def decide(self, flow: HTTPFlow) -> None:
        """Apply the attached process's decision about a flow, encoded to bytes and back."""
        sent_records: Any = tnetstring.loads(tnetstring.dumps(self.seen.decision(flow)))
        self.holds.handle_command(sent_records)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    with taddons.context():
        made = Scene()
        yield made
        made.hub.detach(made.feed)


async def test_an_intercepted_request_resumes_with_the_edit(scene: Scene) -> None:
    flow, waits = scene.request()
    shown = await scene.held()
    assert (shown.request.content, waits.done()) == (b"sent", False)
    shown.request.content = b"edited"
    shown.request.headers["X-Mine"] = "1"
    scene.let_go(shown)
    await waits
    assert (flow.request.content, flow.request.headers["X-Mine"], flow.response) == (b"edited", "1", None)
    assert flow.request.headers["Content-Length"] == "6"
    assert "edited by hand" in flow.comment


def another_path(flow: HTTPFlow) -> None:
    flow.request.path = "/api/v1/nodes"


def trailers(flow: HTTPFlow) -> None:
    flow.request.trailers = flow.request.headers.copy()


@pytest.mark.parametrize("edit", [another_path, trailers])
async def test_an_edit_that_changes_the_target_of_a_request_is_refused(
    scene: Scene, edit: Callable[[HTTPFlow], None]
) -> None:
    flow, waits = scene.request()
    shown = await scene.held()
    edit(shown)
    shown.resume()
    if edit is trailers:
        with pytest.raises(StatusError, match="edit rejected: trailers"):
            scene.decide(shown)
    else:
        scene.decide(shown)
    await waits
    assert flow.response is not None, "nothing goes to a server"
    assert "edit rejected" in orjson.loads(flow.response.content or b"")["message"]
    assert "edit rejected" in flow.comment


async def test_the_length_of_an_edited_body_is_set_by_the_hub(scene: Scene) -> None:
    flow, waits = scene.request()
    shown = await scene.held()
    shown.request.content = b"GET /second HTTP/1.1\r\n\r\n"
    shown.request.headers["Content-Length"] = "0"
    shown.request.headers["Transfer-Encoding"] = "chunked"
    scene.let_go(shown)
    await waits
    assert flow.request.headers["Content-Length"] == "24"
    assert "Transfer-Encoding" not in flow.request.headers


async def test_an_intercepted_response_resumes_with_the_edit(scene: Scene) -> None:
    flow, shown, answered = await scene.answered()
    assert shown.response is not None
    assert shown.response.content == b"answered"
    shown.response.status_code, shown.response.content = 404, b"none"
    scene.let_go(shown)
    await answered
    assert flow.response is not None
    assert (flow.response.status_code, flow.response.content) == (404, b"none")


async def test_a_response_with_an_invalid_edit_resumes_unedited(scene: Scene) -> None:
    flow, shown, answered = await scene.answered()
    assert shown.response is not None
    shown.response.status_code = 101
    scene.let_go(shown)
    await answered
    assert flow.response is not None
    assert flow.response.status_code == 200
    assert "a status is between 200 and 599" in flow.comment


async def test_a_user_kills_an_intercepted_flow(scene: Scene) -> None:
    flow, waits = scene.request()
    shown = await scene.held()
    shown.kill()
    scene.decide(shown)
    await waits
    assert flow.error is not None
    assert "killed" in flow.error.msg
    assert "ended by hand" in flow.comment


async def test_an_intercepted_flow_resumes_after_the_timeout(scene: Scene) -> None:
    before = metrics.BOUNDS_REACHED.labels("time of a held flow")._value.get()
    flow, waits = scene.request()
    begun = asyncio.get_running_loop().time()
    shown = await scene.held()
    await waits
    assert asyncio.get_running_loop().time() - begun == pytest.approx(HOLD_TIME)
    assert (flow.request.content, flow.response, flow.error) == (b"sent", None, None)
    assert metrics.BOUNDS_REACHED.labels("time of a held flow")._value.get() == before + 1
    shown.resume()
    with pytest.raises(StatusError) as late:
        scene.decide(shown)
    assert late.value.code == 409


async def test_flows_resume_when_the_attached_process_disconnects(scene: Scene) -> None:
    flow, waits = scene.request()
    await scene.held()
    scene.hub.detach(scene.feed)
    await waits
    assert (flow.request.content, flow.response) == (b"sent", None)
    _, passes = scene.request()
    await passes


async def test_flows_beyond_the_bound_are_not_intercepted(scene: Scene) -> None:
    before = metrics.BOUNDS_REACHED.labels("held flows")._value.get()
    waiting = [scene.request()[1] for _ in range(MAX_HELD)]
    flow, passes = scene.request()
    await passes
    assert f"not held: {MAX_HELD} others are" in flow.comment
    assert metrics.BOUNDS_REACHED.labels("held flows")._value.get() == before + 1
    assert not any(each.done() for each in waiting)


async def test_a_flow_that_is_not_sent_to_the_process_is_not_intercepted(scene: Scene) -> None:
    _, waits = scene.request()
    await asyncio.sleep(0)
    assert not waits.done()
    scene.request(body=b"x" * (MAX_FEED_BYTES + 1))
    await waits


async def test_responses_of_the_hub_and_secrets_are_never_intercepted(scene: Scene) -> None:
    secret = "/api/v1/namespaces/default/secrets/s"
    for flow, passes in (scene.request(is_own=True), scene.request(secret)):
        await passes
        assert flow.response is None


async def test_a_decision_about_the_request_does_not_apply_to_the_response(scene: Scene) -> None:
    flow, waits = scene.request()
    shown = await scene.held()
    first = scene.holds.number(flow)
    scene.let_go(shown)
    await waits
    answered = await scene.answer(flow)
    await scene.held()
    with pytest.raises(StatusError) as stale:
        scene.holds.handle_command({"flow": flow.id, "hold": first, "changes": {}, "kill": True})
    assert (stale.value.code, answered.done()) == (409, False)


@pytest.mark.parametrize("said", [{}, {"filter": 1}, {"filter": "~~"}, {"flow": "f", "hold": "1"}])
async def test_a_malformed_command_of_an_attached_process_is_400(scene: Scene, said: dict[str, Any]) -> None:
    with pytest.raises(StatusError) as error:
        scene.holds.handle_command(said)
    assert error.value.code == 400
