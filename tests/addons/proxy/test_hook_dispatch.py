"""Hooks reach the addons as mitmproxy itself would call them, and the hub looks each one up once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from mitmproxy import exceptions
from mitmproxy.addonmanager import AddonManager
from mitmproxy.proxy.layers.http._hooks import HttpRequestHook
from mitmproxy.proxy.server_hooks import ClientConnectedHook
from mitmproxy.test import taddons, tflow

from addons.proxy.hook_dispatch import PATCHES
from addons.proxy.patches import install


class Recorder:
    """Notes that it was called, after it does what it was told."""

    def __init__(self, name: str, calls: list[str], error: Exception | None = None) -> None:
        self.name = name
        self.addons: list[object] = []
        self._calls = calls
        self._error = error

    def request(self, _flow: object) -> None:
        self._calls.append(self.name)
        if self._error is not None:
            raise self._error


class Later(Recorder):
    """The same, a turn of the loop later."""

    async def request(self, _flow: object) -> None:  # type: ignore[override]  # mitmproxy takes both
        await asyncio.sleep(0)
        self._calls.append(self.name)


class Updated(Recorder):
    def update(self, flows: list[object]) -> None:
        self._calls.append(f"{self.name} updates {len(flows)}")


class Curious:
    """Counts how often somebody asks whether it has a hook."""

    name = "curious"
    asked = 0

    def __getattr__(self, name: str) -> object:
        if name == "request":
            self.asked += 1
        raise AttributeError(name)


@pytest.fixture
def calls() -> list[str]:
    return []


@pytest.fixture(params=["mitmproxy's own", "the hub's"])
def manager(request: pytest.FixtureRequest, restored: None) -> Iterator[AddonManager]:
    """Each test runs with mitmproxy's own dispatch, too: they do the same."""
    if request.param == "the hub's":
        install(PATCHES)
    with taddons.context() as context:
        context.master.addons.clear()
        yield context.master.addons


def request() -> HttpRequestHook:
    return HttpRequestHook(tflow.tflow())


async def test_hooks_are_called_in_order(manager: AddonManager, calls: list[str]) -> None:
    outer = Recorder("outer", calls)
    outer.addons = [Recorder("inner", calls)]
    manager.add(Later("first", calls), outer, Updated("last", calls))
    await manager.handle_lifecycle(request())
    assert calls == ["first", "outer", "inner", "last", "last updates 1"]


async def test_an_addon_that_comes_or_goes_is_noticed(manager: AddonManager, calls: list[str]) -> None:
    first, second = Recorder("first", calls), Recorder("second", calls)
    manager.add(first)
    await manager.handle_lifecycle(request())
    manager.add(second)
    await manager.handle_lifecycle(request())
    manager.remove(first)
    await manager.handle_lifecycle(request())
    assert calls == ["first", "first", "second", "second"]


async def test_an_error_ends_the_turn_of_its_own_addon(
    manager: AddonManager, calls: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    failing = Recorder("failing", calls, ValueError("on purpose"))
    failing.addons = [Recorder("in it", calls)]
    manager.add(failing, Recorder("next", calls))
    await manager.handle_lifecycle(request())
    assert calls == ["failing", "next"]
    assert "Addon error: on purpose" in caplog.text


async def test_an_addon_may_end_the_turn_of_all_others(manager: AddonManager, calls: list[str]) -> None:
    manager.add(Recorder("halting", calls, exceptions.AddonHalt()), Recorder("next", calls))
    await manager.handle_lifecycle(request())
    assert calls == ["halting"]


async def test_a_refused_option_is_the_callers_to_handle(manager: AddonManager, calls: list[str]) -> None:
    manager.add(Recorder("refusing", calls, exceptions.OptionsError("no")))
    with pytest.raises(exceptions.OptionsError):
        await manager.handle_lifecycle(request())


async def test_a_hook_that_nobody_has_calls_nobody(manager: AddonManager, calls: list[str]) -> None:
    manager.add(Recorder("one", calls))
    await manager.handle_lifecycle(ClientConnectedHook(tflow.tclient_conn()))
    assert not calls


async def asked_in_two_events(manager: AddonManager) -> int:
    curious = Curious()
    manager.add(curious)
    for _ in range(2):
        await manager.trigger_event(request())
    return curious.asked


@pytest.mark.usefixtures("restored")
async def test_mitmproxy_itself_looks_a_hook_up_at_each_event() -> None:
    with taddons.context() as context:
        assert await asked_in_two_events(context.master.addons) == 2


@pytest.mark.usefixtures("restored")
async def test_the_hub_looks_a_hook_up_once() -> None:
    install(PATCHES)
    with taddons.context() as context:
        assert await asked_in_two_events(context.master.addons) == 1
