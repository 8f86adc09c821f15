"""The hub's own master: few addons, options from everywhere, and no file in the user's home."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from mitmproxy.addonmanager import Loader
from mitmproxy.exceptions import OptionsError

from addons.proxy import master


class Noting:
    """An addon with an option, which ends the process as soon as it runs."""

    name = "noting"

    def __init__(self) -> None:
        self.options: dict[str, object] = {}

    def load(self, loader: Loader) -> None:
        self._master = loader.master
        loader.add_option("hub_node", str, "default", "a name")
        loader.add_option("hub_pool", str, "default", "another")

    def running(self) -> None:
        found = self._master.options
        self.options = {name: getattr(found, name) for name in ("hub_node", "hub_pool", "server", "rawtcp")}
        self.addons_beside = {name for name in self._master.addons.lookup if name != self.name}
        self.fails_on_sigpipe = signal.getsignal(signal.SIGPIPE) is not signal.SIG_IGN
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("HOME", str(tmp_path))
    handler = signal.getsignal(signal.SIGPIPE)
    yield tmp_path
    signal.signal(signal.SIGPIPE, handler)
    asyncio.set_event_loop(None)


def test_two_addons_of_mitmproxy_run_until_sigterm(home: Path) -> None:
    noting = Noting()
    master.run([noting], {"hub_node": "n1"}, ["rawtcp=false"])
    assert noting.addons_beside == {"proxyserver", "nextlayer"}
    assert noting.options == {"hub_node": "n1", "hub_pool": "default", "server": False, "rawtcp": False}
    assert not noting.fails_on_sigpipe
    assert list(home.iterdir()) == [], "mitmproxy's TlsConfig would make a CA here"


@pytest.mark.usefixtures("home")
def test_what_is_set_wins_over_what_is_given() -> None:
    noting = Noting()
    given = {"hub_node": "given", "hub_pool": "given", "of_another_program": 1}
    master.run([noting], given, ["hub_node=set"])
    assert (noting.options["hub_node"], noting.options["hub_pool"]) == ("set", "given")


@pytest.mark.usefixtures("home")
def test_an_option_that_nobody_has_is_refused() -> None:
    with pytest.raises(OptionsError, match="nonsense"):
        master.run([Noting()], {}, ["nonsense=1"])
