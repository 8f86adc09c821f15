"""`scripts/hub`: flags become options of mitmproxy, bad ones end with status 2, the rest passes on."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from mitmproxy.tools import main as mitmproxy_main

from addons import command
from addons.command import HUB, QuietMaster, main
from addons.options import OPTIONS

CLOUD = ("--server", "https://cloud:6443", "--node", "n1")


class Started:
    """What would have been run."""

    def __init__(self) -> None:
        self.interface = ""
        self.arguments: list[str] = []

    def sets(self) -> dict[str, str]:
        pairs = zip(self.arguments, self.arguments[1:], strict=False)
        return dict(value.split("=", 1) for flag, value in pairs if flag == "--set")

    def modes(self) -> list[str]:
        pairs = zip(self.arguments, self.arguments[1:], strict=False)
        return [value for flag, value in pairs if flag == "--mode"]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    found = Started()

    def note(interface: str, arguments: list[str]) -> None:
        found.interface, found.arguments = interface, arguments

    def run(master: object, _parser: object, arguments: list[str]) -> None:
        assert master is QuietMaster
        note("none", arguments)

    monkeypatch.setattr(mitmproxy_main, "run", run)
    monkeypatch.setattr(mitmproxy_main, "mitmproxy", lambda arguments: note("console", arguments))
    monkeypatch.setattr(mitmproxy_main, "mitmweb", lambda arguments: note("web", arguments))
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    level = logging.getLogger("mitmproxy").level
    yield found
    logging.getLogger("mitmproxy").setLevel(level)


def test_flags_become_options(started: Started) -> None:
    main([*CLOUD, "--port", "0", "--tls-port", "7000", "--pod-address", "169.254.2.1", "--state-dir", "/s"])
    sets = started.sets()
    assert sets["hub_server"] == "https://cloud:6443"
    assert (sets["hub_port"], sets["hub_tls_port"]) == ("0", "7000")
    assert (sets["hub_pod_address"], sets["hub_state_dir"], sets["hub_node"]) == ("169.254.2.1", "/s", "n1")


def test_every_flag_of_the_design_is_there(started: Started) -> None:
    given = {
        "server": "https://a:1,https://b:2",
        "kubeconfig": "/k",
        "node": "n",
        "pool": "p",
        "state-dir": "/s",
        "mode": "cloud",
        "listen": "127.0.0.2",
        "port": "1001",
        "tls-port": "1002",
        "peer-port": "1003",
        "admin-port": "1004",
        "pod-address": "10.0.0.1",
        "tls-cert": "/c",
        "tls-key": "/y",
    }
    main([part for name, value in given.items() for part in (f"--{name}", value)])
    found = started.sets()
    assert {name: found[f"hub_{name.replace('-', '_')}"] for name in given} == given


def test_a_flag_for_every_option(started: Started) -> None:
    flags = command._parser()._option_string_actions
    assert {f"--{name.replace('_', '-')}" for name, *_ in OPTIONS} < set(flags)
    main([*CLOUD])
    assert set(started.sets()) - {"server"} <= {f"hub_{name}" for name, *_ in OPTIONS}


def test_listeners_are_given_but_opened_later(started: Started) -> None:
    main([*CLOUD, "--port", "0"])
    assert len(started.modes()) == 2
    assert any(mode.endswith(":10268") for mode in started.modes())
    assert started.sets()["server"] == "false"


def test_the_addons_are_loaded(started: Started) -> None:
    main([*CLOUD])
    assert HUB.is_file()
    assert started.arguments[started.arguments.index("-s") + 1] == str(HUB)


@pytest.mark.parametrize(
    ("flags", "interface"),
    [((), "none"), (("--ui", "none"), "none"), (("--ui", "console"), "console"), (("--ui", "web"), "web")],
)
def test_interfaces(started: Started, flags: tuple[str, ...], interface: str) -> None:
    main([*CLOUD, *flags])
    assert started.interface == interface


def test_what_follows_two_dashes_passes_on_and_comes_last(started: Started) -> None:
    main([*CLOUD, "--", "--set", "web_port=1", "--server", "x", "--"])
    assert started.arguments[-5:] == ["--set", "web_port=1", "--server", "x", "--"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "where the cloud is"),
        ((*CLOUD, "--port", "x"), "invalid int value"),
        ((*CLOUD, "--port", "70000"), "not a port"),
        ((*CLOUD, "--tls-port", "10261"), "same port"),
        ((*CLOUD, "--mode", "sky"), "hub_mode is one of"),
        ((*CLOUD, "--ui", "tv"), "invalid choice"),
        ((*CLOUD, "--colour", "red"), "unrecognized arguments"),
        ((*CLOUD, "stray"), "unrecognized arguments"),
        (("--server", "cloud"), "is not of the form"),
        ((*CLOUD, "--tls-cert", "/c"), "belong together"),
    ],
)
def test_a_bad_flag_ends_with_status_2_and_says_why(
    started: Started, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert words in capsys.readouterr().err
    assert not started.arguments


def test_help_ends_with_status_0(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    assert "--pod-address" in capsys.readouterr().out
