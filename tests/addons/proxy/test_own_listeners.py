"""Changes of the hub's listeners: which are refused before anything closes, and which ports reopen by themselves."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from mitmproxy import hooks
from mitmproxy.addons.next_layer import NextLayer
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.exceptions import OptionsError
from mitmproxy.options import Options
from mitmproxy.optmanager import OptManager
from mitmproxy.test import taddons

from addons.proxy import own_listeners
from addons.proxy.own_listeners import OPTIONS, OwnListeners
from addons.telemetry import metrics
from tests.addons.support.hub_of import hub_of
from tests.addons.support.listening import address_of
from tests.addons.support.observed import until, value_of
from tests.cloud.ports import LOOPBACK, free_port


class World:
    """mitmproxy with its own addon for listeners, followed by the hub's, as a script is loaded."""

    def __init__(self, server: Proxyserver, own: OwnListeners, options: Options) -> None:
        self.server = server
        self.own = own
        self.options = options
        self.spec = f"hub:plain@{LOOPBACK}:{free_port()}"

    def listening(self) -> list[tuple[str, int]]:
        return [(host, port) for each in self.server.servers for host, port, *_ in each.listen_addrs]

    def values(self) -> dict[str, Any]:
        return {name: getattr(self.options, name) for name in OPTIONS}


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(own_listeners, "CHECK_INTERVAL", 0.05)
    own = OwnListeners()
    with taddons.context(server := Proxyserver(), NextLayer(), hub_of(own)) as context:
        made = World(server, own, context.options)
        await context.master.addons.trigger_event(hooks.RunningHook())
        await own.open([made.spec])
        yield made
        own.done()
        await server.servers.update([])


def set_together(options: OptManager) -> None:
    options.update(mode=["regular@127.0.0.1:0"], server=True)


CHANGES: dict[str, Callable[[OptManager], None]] = {
    "mitmweb's tick": set_together,
    "a further port": lambda options: options.update(mode=[*options.mode, "regular@127.0.0.1:0"]),
    ":set mode": lambda options: options.set("mode=regular@127.0.0.1:0"),
    ":set server": lambda options: options.set("server=false"),
    "a toggle": lambda options: options.toggler("server")(),
    "no mode": lambda options: options.update(mode=[]),
    "an address": lambda options: options.update(listen_host="127.0.0.2"),
    "a port": lambda options: options.update(listen_port=8081),
    "among others": lambda options: options.update(rawtcp=False, server=False),
    ":options.reset.one": lambda options: setattr(options, "mode", options.default("mode")),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_a_change_is_refused_before_anything_closes(
    world: World, change: Callable[[OptManager], None]
) -> None:
    before, opened, instances = world.values(), world.listening(), [*world.server.servers]
    with pytest.raises(OptionsError, match="the hub owns the ports of this process"):
        change(world.options)
    for _ in range(10):
        await asyncio.sleep(0)  # the update that mitmproxy's own addon has begun
    assert (world.values(), world.listening(), [*world.server.servers]) == (before, opened, instances)
    assert world.options.rawtcp


async def test_options_that_do_not_affect_listeners_may_be_changed(world: World) -> None:
    world.options.update(rawtcp=False)
    assert not world.options.rawtcp


async def close_by_mitmproxy(world: World) -> None:
    await world.server.servers.update([])


async def close_the_socket(world: World) -> None:
    for instance in world.server.servers:
        for server in getattr(instance, "_servers", ()):
            server.close()


async def reset_all(world: World) -> None:
    """Reset all options: mitmproxy restores nothing after a refusal, and notifies its own addons with the next
    change."""
    with pytest.raises(OptionsError):
        world.options.reset()
    await world.server.servers.update([])


@pytest.mark.parametrize("lose", [close_by_mitmproxy, close_the_socket, reset_all])
async def test_a_lost_listener_is_reopened_logged_and_counted(
    world: World, caplog: pytest.LogCaptureFixture, lose: Callable[[World], Any]
) -> None:
    before, lost = world.values(), value_of(metrics.LISTENERS_LOST)
    address = world.spec.rpartition("@")[2]
    await lose(world)
    assert world.own.closed() == [address]
    await until(lambda: not world.own.closed())
    await until(lambda: f"the listener at {address} is open again" in caplog.text)
    assert (world.values(), value_of(metrics.LISTENERS_LOST)) == (before, lost + 1)
    assert world.listening() == [address_of(world.spec)]


async def test_a_listener_on_a_used_port_is_retried_until_it_is_free(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    host, port = address_of(world.spec)
    await close_by_mitmproxy(world)
    with socket.create_server((host, port)):
        await until(lambda: "cannot be opened" in caplog.text)
        await until(lambda: value_of(metrics.LISTENERS_CLOSED) == 1)
        await asyncio.sleep(0.2)  # some more checks
    await until(lambda: not world.own.closed())
    await until(lambda: value_of(metrics.LISTENERS_CLOSED) == 0)
    levels = [record.levelno for record in caplog.records if record.name == own_listeners.__name__]
    assert levels == [logging.ERROR, logging.ERROR, logging.WARNING], "each once"


async def test_a_listener_closed_by_the_hub_is_not_reopened(world: World) -> None:
    lost = value_of(metrics.LISTENERS_LOST)
    for _ in range(20):
        await world.own.open([])
        await asyncio.sleep(0.01)
        await world.own.open([world.spec])
    assert value_of(metrics.LISTENERS_LOST) == lost
    assert world.own.closed() == []


async def test_the_port_that_mitmproxy_opens_at_its_start_is_closed() -> None:
    """A script is loaded while mitmproxy opens its own port, which would stay open until the hub's ports are."""
    taken = socket.create_server((LOOPBACK, 0))
    with taddons.context(server := Proxyserver(), NextLayer()) as context, contextlib.closing(taken):
        context.options.update(mode=[f"regular@{LOOPBACK}:{taken.getsockname()[1]}"])
        setup = asyncio.create_task(server.setup_servers(), name=own_listeners.SETUP)
        await asyncio.sleep(0)
        context.master.addons.add(hub_of(OwnListeners()))
        with pytest.raises(asyncio.CancelledError):
            await setup
        assert not any(each.listen_addrs for each in server.servers)
        await server.servers.update([])
