"""The loop that runs a controller: retries, isolation, the queue, and the end of leadership."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from controllers.runtime import metrics
from controllers.runtime.controller import Context, Controller, own_key
from controllers.runtime.informer import Informers
from controllers.runtime.write_client import EventRecorder, NotLeading, WriteClient
from controllers.settings import Settings
from kube.concurrency.workqueue import FIRST_RETRY
from kube.errors import conflict, internal, invalid
from kube.http.client import Client, Unreachable
from kube.http.session import Session
from kube.store.store import Key

pytestmark = pytest.mark.looptime


class Recorded(Controller):
    """A controller that records its calls, and does what the test sets."""

    def __init__(self, name: str, work: Callable[[Key], Awaitable[None]]) -> None:
        self.name = name
        client = Client(cast(Session, None), "", {})
        api = WriteClient(client, lambda: 1.0)
        super().__init__(Context(api, Informers(client), EventRecorder(api, name), Settings(), lambda: ""))
        self._work_on = work
        self.asked: list[tuple[str, float]] = []

    async def reconcile(self, key: Key) -> None:
        self.asked.append((key[1], asyncio.get_running_loop().time()))
        await self._work_on(key)


async def run(controller: Controller, seconds: float) -> None:
    task = asyncio.ensure_future(controller.run())
    await asyncio.sleep(seconds)
    task.cancel()
    await asyncio.wait([task])
    controller.queue.close()


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (conflict("x"), "conflict"),
        (invalid("x"), "refused"),
        (internal("x"), "failed"),
        (Unreachable("x"), "failed"),
        (NotLeading("x"), "failed"),
        (KeyError("x"), "failed"),
    ],
)
async def test_a_failing_object_backs_off_and_does_not_block_others(error: Exception, result: str) -> None:
    def counted(name: str, result: str) -> float:
        return (
            metrics.REGISTRY.get_sample_value(
                "edgehub_manager_work_total", {"controller": name, "result": result}
            )
            or 0.0
        )

    async def work(key: Key) -> None:
        if key[1] == "bad":
            raise error

    name = f"bad-{type(error).__name__}-{result}"
    controller = Recorded(name, work)
    for key in ("bad", "good", "better"):
        controller.queue.add(("", key))
    await run(controller, 60)
    asked = [at for key, at in controller.asked if key == "bad"]
    waits = [later - earlier for earlier, later in itertools.pairwise(asked)]
    assert 10 < len(asked) < 20
    assert waits == sorted(waits)
    assert [key for key, _ in controller.asked if key != "bad"] == ["good", "better"]
    assert counted(name, result) == len(asked)
    assert counted(name, "done") == 2


async def test_success_ends_the_backoff() -> None:
    failures = 3

    async def work(key: Key) -> None:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise internal("x")

    controller = Recorded("recovering", work)
    controller.queue.add(("", "a"))
    await run(controller, 5)
    assert len(controller.asked) == 4
    assert controller.queue.retry(("", "a")) == FIRST_RETRY, "its failures are forgotten"


async def test_work_interrupted_by_the_loss_of_leadership_is_repeated() -> None:
    async def work(key: Key) -> None:
        await asyncio.sleep(10)

    controller = Recorded("ended", work)
    controller.queue.add(("", "a"))
    await run(controller, 1)
    assert len(controller.queue) == 1
    assert controller.busy()
    await run(controller, 11)
    assert len(controller.asked) == 2
    assert not controller.busy()


@pytest.mark.parametrize(
    ("old", "new", "keys"), [(None, "x", 1), ("x", None, 1), ("x", "y", 1), ("x", "x", 0)]
)
def test_a_controller_with_one_key_enqueues_it_for_every_object(
    old: str | None, new: str | None, keys: int
) -> None:
    assert len(list(own_key(("", "a"), old, new))) == keys
