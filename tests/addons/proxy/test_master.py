"""The hub as one addon, and the master that runs it without an interface."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mitmproxy import hooks
from mitmproxy.addonmanager import Loader
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.exceptions import OptionsError
from mitmproxy.test import taddons, tflow

from addons.proxy import master
from addons.proxy.hub_addon import HubAddon
from addons.proxy.listeners import Listening
from kube.errors import forbidden
from tests.addons.support.hub_of import hub_of


class Noting:
    """An addon with one option, which ends the process as soon as it runs."""

    name = "noting"

    def __init__(self) -> None:
        self.options: dict[str, object] = {}

    def load(self, loader: Loader) -> None:
        self._master = loader.master
        loader.add_option("hub_node", str, "default", "a name")
        loader.add_option("hub_pool", str, "default", "another")

    def configure(self, updated: set[str]) -> None:
        self.seen = updated

    def running(self) -> None:
        found = self._master.options
        self.options = {name: getattr(found, name) for name in ("hub_node", "hub_pool", "server", "rawtcp")}
        self.addons_beside = {name for name in self._master.addons.lookup if name != self.name}
        self.fails_on_sigpipe = signal.getsignal(signal.SIGPIPE) is not signal.SIG_IGN
        os.kill(os.getpid(), signal.SIGTERM)


def addon(part: Noting) -> HubAddon:
    return hub_of(part)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("HOME", str(tmp_path))
    handler = signal.getsignal(signal.SIGPIPE)
    yield tmp_path
    signal.signal(signal.SIGPIPE, handler)
    asyncio.set_event_loop(None)


def test_the_hubs_addon_runs_until_sigterm(home: Path) -> None:
    noting = Noting()
    master.run(addon(noting), {"hub_node": "n1"}, ["rawtcp=false"])
    assert noting.addons_beside == {"proxyserver"}, "the listeners"
    assert noting.options == {"hub_node": "n1", "hub_pool": "default", "server": False, "rawtcp": False}
    assert not noting.fails_on_sigpipe
    assert list(home.iterdir()) == [], "mitmproxy's TlsConfig would make a CA here"


@pytest.mark.usefixtures("home")
def test_an_option_by_set_overrides_the_flag() -> None:
    noting = Noting()
    given = {"hub_node": "given", "hub_pool": "given", "of_another_program": 1}
    master.run(addon(noting), given, ["hub_node=set"])
    assert (noting.options["hub_node"], noting.options["hub_pool"]) == ("set", "given")


@pytest.mark.usefixtures("home")
def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(OptionsError, match="nonsense"):
        master.run(addon(Noting()), {}, ["nonsense=1"])


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("name", master.SIZES)
def test_an_invalid_size_is_refused(name: str) -> None:
    with pytest.raises(OptionsError, match=f"{name} is a size"):
        master.run(addon(Noting()), {}, [f"{name}=much"])


def test_options_of_mitmproxys_layers_have_the_hubs_defaults() -> None:
    """`proxyserver` declares them; the hub changes some defaults."""
    with taddons.context(Proxyserver()) as context:
        for name, kind, default in master.LAYER_OPTIONS:
            own = context.options._options[name]
            assert own.typespec == kind, name
            assert own.default == default or name in ("connection_strategy", "keep_host_header")


async def test_a_failing_hook_is_logged_and_the_next_hook_runs(caplog: pytest.LogCaptureFixture) -> None:
    class Failing:
        async def request(self, _flow: object) -> None:
            raise RuntimeError("on purpose")

    manager = master.OneAddon(Failing(), Listening())
    await manager.handle_lifecycle(hooks.all_hooks["request"](tflow.tflow()))
    await manager.handle_lifecycle(hooks.all_hooks["response"](tflow.tflow()))
    assert "on purpose" in caplog.text


class Part:
    """Record its calls, after running its own action."""

    def __init__(self, name: str, calls: list[str], error: Exception | None = None) -> None:
        self.name = name
        self._calls = calls
        self._error = error

    def _call(self, hook: str) -> None:
        self._calls.append(f"{self.name}.{hook}")
        if self._error is not None:
            raise self._error

    def configure(self, _updated: set[str]) -> None:
        self._call("configure")

    def requestheaders(self, _flow: object) -> None:
        self._call("requestheaders")

    async def response(self, _flow: object) -> None:
        await asyncio.sleep(0)
        self._call("response")

    def client_connected(self, _client: object) -> None:
        self._call("client_connected")

    def done(self) -> None:
        self._call("done")


@pytest.fixture
def calls() -> list[str]:
    return []


async def test_hooks_are_called_in_order(calls: list[str]) -> None:
    made: Any = hub_of(Part("first", calls), object(), Part("second", calls))
    with taddons.context(made):
        await made.requestheaders(tflow.tflow())
        await made.response(tflow.tflow(resp=True))
        await made.client_connected(tflow.tclient_conn())
        made.done()
    assert calls == [
        f"{part}.{hook}"
        for hook in ("requestheaders", "response", "client_connected", "done")
        for part in ("first", "second")
    ]


def test_the_addon_has_exactly_the_hooks_of_its_parts(calls: list[str]) -> None:
    made = hub_of(Part("one", calls))
    assert not hasattr(made, "request")
    assert not hasattr(made, "server_connect")


async def test_a_refused_request_skips_the_remaining_parts(calls: list[str]) -> None:
    made: Any = hub_of(Part("refusing", calls, forbidden("no")), Part("next", calls))
    flow = tflow.tflow()
    await made.requestheaders(flow)
    assert flow.response is not None
    assert calls == ["refusing.requestheaders"]
    await made.response(flow)
    assert calls[1:] == ["refusing.response", "next.response"], "each may count what it began"


def test_an_options_error_is_raised_to_mitmproxy(calls: list[str]) -> None:
    made = hub_of(Part("refusing", calls, OptionsError("no")), Part("next", calls))
    with pytest.raises(OptionsError):
        made.configure({"hub_node"})
    assert calls == ["refusing.configure"]


def test_a_failure_to_build_the_parts_ends_the_process(caplog: pytest.LogCaptureFixture) -> None:
    """mitmproxy would log the error and continue without the hub."""
    made = HubAddon(lambda: [1 / 0])
    with taddons.context() as context, pytest.raises(SystemExit) as caught:
        context.master.addons.add(made)
    assert caught.value.code == 1
    assert "the hub cannot start" in caplog.text


def test_every_part_is_ended_even_if_one_raises(calls: list[str], caplog: pytest.LogCaptureFixture) -> None:
    hub_of(Part("failing", calls, ValueError("on purpose")), Part("next", calls)).done()
    assert calls == ["failing.done", "next.done"]
    assert "on purpose" in caplog.text
