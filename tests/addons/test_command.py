"""`edgehub`: flags become options of mitmproxy, invalid ones end with status 2, others are passed to an interface."""

from __future__ import annotations

import errno
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.exceptions import OptionsError
from mitmproxy.test import taddons
from mitmproxy.tools import main as programs

from addons import command, hub
from addons.command import HUB, main
from addons.options import Options
from addons.proxy import master
from addons.settings import OPTIONS, parse_settings
from kube.option import Option
from tests.cloud.kubeconfig import write_kubeconfig

CLOUD = ("--server", "https://cloud:6443", "--node", "n1")


class Started:
    """The program that would have been run, with its arguments."""

    def __init__(self) -> None:
        self.interface = ""
        self.given: dict[str, Any] = {}
        self.specifications: list[str] = []
        self.arguments: list[str] = []

    def sets(self) -> dict[str, str]:
        """Return the options that an interface got by `--set`."""
        pairs = zip(self.arguments, self.arguments[1:], strict=False)
        return dict(value.split("=", 1) for flag, value in pairs if flag == "--set")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    found = Started()

    def note(interface: str, arguments: list[str]) -> None:
        found.interface, found.arguments = interface, arguments

    def run(addon: object, given: Mapping[str, Any], specifications: Sequence[str]) -> None:
        assert addon is hub.addon
        found.interface, found.given, found.specifications = "none", dict(given), list(specifications)

    monkeypatch.setattr(master, "run", run)
    monkeypatch.setattr(programs, "mitmproxy", lambda arguments: note("console", arguments))
    monkeypatch.setattr(programs, "mitmweb", lambda arguments: note("web", arguments))
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda _: True)
    monkeypatch.setattr(command, "log_to_stderr", lambda *_: None)
    monkeypatch.setattr(Options, "are_flags", False)
    level = logging.getLogger("mitmproxy").level
    yield found
    logging.getLogger("mitmproxy").setLevel(level)


@pytest.mark.parametrize("interface", ["none", "web"])
@pytest.mark.parametrize("each", OPTIONS, ids=lambda each: each.name)
def test_each_flag_reaches_the_settings_with_each_interface(
    started: Started, tmp_path: Path, each: Option, interface: str
) -> None:
    # Flags that require another one.
    together = {
        "context": ("--kubeconfig", "{folder}/x"),
        "tls_cert": ("--tls-key", "/key"),
        "tls_key": ("--tls-cert", "/cert"),
        "kubelet_client_certificate": ("--kubelet-client-key", "/key"),
        "kubelet_client_key": ("--kubelet-client-certificate", "/cert"),
        "peer_cert": ("--peer-key", "/key"),
        "peer_key": ("--peer-cert", "/cert"),
        "peer_clients": ("--mode", "cloud", "--peer-cert", "/cert", "--peer-key", "/key"),
        "local_port": ("--local-endpoint", "10.0.0.1"),
    }

    def _together(name: str, folder: Path) -> list[str]:
        return [argument.format(folder=folder) for argument in together.get(name, ())]

    write_kubeconfig(tmp_path / "x", "https://cloud:6443")
    value: Any = True
    # A valid value of each option for which `/x` or 1234 is invalid.
    values = {
        **dict.fromkeys(("probe_interval", "probe_timeout"), "1.5"),
        "listen": "127.0.0.2",
        "pod_address": "auto,10.0.0.1",
        "peer_address": "::1",
        "local_endpoint": "10.0.0.1",
        "node": "n2",
        "pool": "east",
        "server": "https://a:1,https://b:2",
        "relay": "https://r:1",
        "leaders": "n2/10.0.0.2",
        "local_health": "http://127.0.0.1:1/x",
        "plain_users": "root",
        "context": "test",
        "disabled_filters": "endpoints",
        "uplink": "eth0:5",
        "link_budget": "20MB/day",
    }
    if each.kind is not bool:
        other = each.choices[-1] if each.choices else "1234" if each.kind is int else f"{tmp_path}/x"
        value = each.kind(values.get(each.name, other))
    typed = {
        **dict(zip(*[iter((*CLOUD, *_together(each.name, tmp_path)))] * 2, strict=True)),
        each.flag: value,
    }
    flags = [
        str(argument)
        for flag, given in typed.items()
        for argument in ((flag,) if given is True else (flag, given))
    ]
    main([*flags, "--ui", interface, "--", "--set", f"confdir={tmp_path}"])
    options = Options()
    with taddons.context(Proxyserver(), options) as context:
        if interface == "none":
            context.options.update(**started.given)
        else:
            # Parsed like mitmproxy, which has more options than this context.
            context.options.set(*(f"{name}={text}" for name, text in started.sets().items()), defer=True)
    assert options.settings == parse_settings(
        {flag[2:].replace("-", "_"): given for flag, given in typed.items()}
    )
    assert getattr(options.settings, each.field) != each.default_setting()


def test_an_interface_loads_the_hub_and_opens_nothing_by_itself(started: Started) -> None:
    main([*CLOUD, "--ui", "web", "--log-level", "warning"])
    assert HUB.is_file()
    assert started.arguments[started.arguments.index("-s") + 1] == str(HUB)
    assert started.sets() == {
        "server": "false",
        "hub_server": "https://cloud:6443",
        "hub_node": "n1",
        "termlog_verbosity": "warn",
    }


@pytest.mark.parametrize(
    ("flags", "interface"),
    [((), "none"), (("--ui", "none"), "none"), (("--ui", "console"), "console"), (("--ui", "web"), "web")],
)
def test_each_ui_flag_starts_its_interface(started: Started, flags: tuple[str, ...], interface: str) -> None:
    main([*CLOUD, *flags])
    assert started.interface == interface
    assert Options.are_flags, "messages name the options as they were typed"


@pytest.mark.parametrize("end", [SystemExit(1), AttributeError("idle_handle")])
def test_the_reason_of_a_failed_start_is_printed_after_the_console_closes(
    started: Started, monkeypatch: pytest.MonkeyPatch, end: BaseException
) -> None:
    def fail(_arguments: list[str]) -> None:
        logging.getLogger("addons.assembly").critical("the hub cannot start: %s", "no port")
        logging.getLogger("addons.egress").error("something else")
        raise end

    monkeypatch.setattr(programs, "mitmproxy", fail)
    handlers = list(logging.getLogger().handlers)
    with pytest.raises(SystemExit) as caught:
        main([*CLOUD, "--ui", "console"])
    assert caught.value.code == "edgehub: the hub cannot start: no port", "Python prints it, with status 1"
    assert logging.getLogger().handlers == handlers


def test_an_interface_that_cannot_start_is_reported_in_one_line(
    started: Started, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(_arguments: list[str]) -> None:
        raise OSError(
            errno.EADDRINUSE, "Web server failed to listen on 127.0.0.1:8081 with [Errno 98] Address"
        )

    (tmp_path / "kubeconfig").write_text("no kubeconfig")
    monkeypatch.setattr(programs, "mitmweb", fail)
    with pytest.raises(SystemExit, match=r"8081: Address already in use; .*-- --set web_port="):
        main([*CLOUD, "--ui", "web"])
    with pytest.raises(SystemExit, match="it is no kubeconfig; give --kubeconfig the one of this node"):
        main(["--kubeconfig", str(tmp_path / "kubeconfig"), "--ui", "console"])
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda _: False)
    with pytest.raises(SystemExit, match="--ui console needs a terminal"):
        main([*CLOUD, "--ui", "console"])
    assert not started.interface


def test_arguments_after_two_dashes_are_passed_last_to_an_interface(started: Started) -> None:
    main([*CLOUD, "--ui", "web", "--", "--set", "web_port=1", "--server", "x", "--"])
    assert started.arguments[-5:] == ["--set", "web_port=1", "--server", "x", "--"]


def test_options_can_be_set_without_an_interface(started: Started) -> None:
    main(["--node", "n1", "--", "--set", "body_size_limit=3m", "--set", "hub_server=https://b"])
    assert started.specifications == ["body_size_limit=3m", "hub_server=https://b"]


def test_the_configuration_file_of_mitmproxy_is_read(started: Started, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("hub_server: https://cloud:6443\n")
    main(["--node", "n1", "--", "--set", f"confdir={tmp_path}"])
    assert started.given == {"hub_server": "https://cloud:6443", "hub_node": "n1"}
    main(["--server", "https://flag:6443", "--", "--set", f"confdir={tmp_path}"])
    assert started.given == {"hub_server": "https://flag:6443"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hub_servr: x", "there is no option hub_servr: is it hub_server?"),
        ("hub_server: [", "config.yaml"),
        ("hub_server: cloud", "is not of the form"),
    ],
)
def test_mistakes_in_the_configuration_of_mitmproxy_are_reported(
    started: Started, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(SystemExit) as caught:
        main(["--", "--set", f"confdir={tmp_path}"])
    assert caught.value.code == 2
    assert message in capsys.readouterr().err
    assert not started.interface


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "no cloud: give --server or --kubeconfig"),
        ((*CLOUD, "--port", "x"), "invalid int value"),
        ((*CLOUD, "--pool", "a/b"), "--pool 'a/b' is not a valid name of a NodePool"),
        ((*CLOUD, "--port", "70000"), "--port 70000 is not a port"),
        ((*CLOUD, "--ui", "tv"), "--ui must be one of none, console, web, not 'tv'"),
        ((*CLOUD, "--colour", "red"), "unrecognized arguments"),
        ((*CLOUD, "stray"), "unrecognized arguments"),
        ((*CLOUD, "--tls-cert", "/c"), "--tls-cert and --tls-key must be given together"),
        ((*CLOUD, "--", "--set", "hub_prot=1"), "there is no option hub_prot: is it hub_port?"),
        ((*CLOUD, "--", "--set", "hub_port=x"), "invalid literal"),
        ((*CLOUD, "--", "--set"), "after --: argument --set: expected one argument"),
        (("bogus",), "'bogus'. status, components, sources,"),
        (("bogus",), "doctor, fleet, install, manifests, uninstall, upgrade: need none"),
        (("install", "--nonsense"), "edgehub install: error: unrecognized arguments: --nonsense"),
        (("status", "--nonsense"), "edgehub status: error: unrecognized arguments: --nonsense"),
        ((*CLOUD, "--", "-w", "flows"), "-w after -- is for mitmproxy's interfaces: give --ui"),
    ],
)
def test_an_invalid_flag_ends_with_status_2_and_the_reason(
    started: Started, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert not started.interface


def test_an_option_that_mitmproxy_refuses_is_reported_in_one_line(
    started: Started, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*_: object) -> None:
        raise OptionsError("Unknown option(s): nonsense")

    monkeypatch.setattr(master, "run", run)
    with pytest.raises(SystemExit) as caught:
        main([*CLOUD, "--", "--set", "nonsense=1"])
    assert caught.value.code == 2
    assert capsys.readouterr().err == "edgehub: Unknown option(s): nonsense\n"


@pytest.mark.parametrize(("flag", "message"), [("--help", "--pod-address"), ("--version", "edgehub ")])
def test_help_and_version_end_with_status_0(
    capsys: pytest.CaptureFixture[str], flag: str, message: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        main([flag])
    assert caught.value.code == 0
    assert message in capsys.readouterr().out
