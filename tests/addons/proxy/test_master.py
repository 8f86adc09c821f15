"""The hub's own master: few addons, options from everywhere, and no file in the user's home."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from mitmproxy import hooks
from mitmproxy.addonmanager import Loader
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.exceptions import OptionsError
from mitmproxy.test import taddons, tflow

from addons.proxy import master
from addons.proxy.hub_addon import HubAddon
from addons.proxy.listeners import Listening


class Noting:
    """An addon with an option, which ends the process as soon as it runs."""

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
    return HubAddon([part])


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("HOME", str(tmp_path))
    handler = signal.getsignal(signal.SIGPIPE)
    yield tmp_path
    signal.signal(signal.SIGPIPE, handler)
    asyncio.set_event_loop(None)


def test_the_one_addon_runs_until_sigterm(home: Path) -> None:
    noting = Noting()
    master.run(addon(noting), {"hub_node": "n1"}, ["rawtcp=false"])
    assert noting.addons_beside == {"proxyserver"}, "the listeners"
    assert noting.options == {"hub_node": "n1", "hub_pool": "default", "server": False, "rawtcp": False}
    assert not noting.fails_on_sigpipe
    assert list(home.iterdir()) == [], "mitmproxy's TlsConfig would make a CA here"


@pytest.mark.usefixtures("home")
def test_what_is_set_wins_over_what_is_given() -> None:
    noting = Noting()
    given = {"hub_node": "given", "hub_pool": "given", "of_another_program": 1}
    master.run(addon(noting), given, ["hub_node=set"])
    assert (noting.options["hub_node"], noting.options["hub_pool"]) == ("set", "given")


@pytest.mark.usefixtures("home")
def test_an_option_that_nobody_has_is_refused() -> None:
    with pytest.raises(OptionsError, match="nonsense"):
        master.run(addon(Noting()), {}, ["nonsense=1"])


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("name", master.SIZES)
def test_a_size_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(OptionsError, match=f"{name} is a size"):
        master.run(addon(Noting()), {}, [f"{name}=much"])


def test_the_layers_options_are_mitmproxys_own() -> None:
    """`proxyserver` declares them; the hub has other defaults where it needs them."""
    with taddons.context(Proxyserver()) as context:
        for name, kind, default in master.LAYER_OPTIONS:
            own = context.options._options[name]
            assert own.typespec == kind, name
            assert own.default == default or name in ("connection_strategy", "keep_host_header")


async def test_a_hook_that_fails_is_told_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Failing:
        async def request(self, _flow: object) -> None:
            raise RuntimeError("on purpose")

    manager = master.OneAddon(Failing(), Listening())
    await manager.handle_lifecycle(hooks.all_hooks["request"](tflow.tflow()))
    await manager.handle_lifecycle(hooks.all_hooks["response"](tflow.tflow()))
    assert "on purpose" in caplog.text
