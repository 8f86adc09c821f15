"""The manager's command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from controllers.settings import WEBHOOK_CONTROLLER, Address, Settings, parse_controllers, parse_settings

KNOWN = ["a", "b", "c"]


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("*", "abc"),
        ("a,b", "ab"),
        (" a , b ,", "ab"),
        ("*,-c", "ab"),
        ("-c", "ab"),
        ("-a,-b", "c"),
        ("a,-a", ""),
        ("", ""),
    ],
)
def test_the_option_controllers_selects_controllers(text: str, chosen: str) -> None:
    assert parse_controllers(text, KNOWN) == frozenset(chosen)


@pytest.mark.parametrize("text", ["d", "*,-d", "A"])
def test_an_unknown_controller_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="there is no controller"):
        parse_controllers(text, KNOWN)


def test_the_defaults_of_all_options() -> None:
    assert parse_settings([], KNOWN) == Settings(controllers=frozenset(KNOWN))


def test_every_option_is_parsed() -> None:
    options = "--kubeconfig k --namespace n --controllers a --listen 127.0.0.1 --admin-port 0"
    more = "--no-leader-elect --trigger-annotation openyurt.io/update-trigger --verbose --webhook-client-ca f"
    assert parse_settings([*options.split(), *more.split()], KNOWN) == Settings(
        kubeconfig=Path("k"),
        namespace="n",
        controllers=frozenset("a"),
        listen="127.0.0.1",
        admin_port=0,
        webhook_client_ca=Path("f"),
        leader_elect=False,
        trigger_annotation="openyurt.io/update-trigger",
        verbose=True,
    )


@pytest.mark.parametrize(("port", "chosen"), [("8443", {"a", WEBHOOK_CONTROLLER}), ("0", {"a"})])
def test_webhook_port_0_disables_the_webhook(port: str, chosen: set[str]) -> None:
    settings = parse_settings(["--webhook-port", port], ["a", WEBHOOK_CONTROLLER])
    assert settings.webhook.port == int(port)
    assert settings.controllers == frozenset(chosen)


@pytest.mark.parametrize(
    ("options", "elects"),
    [
        ([], True),
        (["--leader-elect"], True),
        (["--leader-elect=true"], True),
        (["--leader-elect=FALSE"], False),
        (["--leader-elect=0"], False),
        (["--no-leader-elect"], False),
    ],
)
def test_leader_elect_accepts_the_forms_of_go_flags(options: list[str], elects: bool) -> None:
    assert parse_settings(options, KNOWN).leader_elect is elects


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":8080", Address("", 8080)),
        ("127.0.0.1:8080", Address("127.0.0.1", 8080)),
        ("[::1]:8080", Address("::1", 8080)),
        ("0", Address("", 0)),
    ],
)
def test_addresses_are_parsed_like_in_controller_runtime(text: str, address: Address) -> None:
    settings = parse_settings(["--metrics-bind-address", text], KNOWN)
    assert (settings.metrics, settings.probes) == (address, Settings().probes)
    assert parse_settings(["--health-probe-bind-address", text], KNOWN).probes == address


@pytest.mark.parametrize("option", ["--leader-elect=perhaps", "--metrics-bind-address=here"])
def test_an_invalid_value_ends_the_process(option: str) -> None:
    with pytest.raises(SystemExit):
        parse_settings([option], KNOWN)


def test_an_unknown_option_ends_the_process(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_settings(["--controllers", "d"], KNOWN)
    assert ended.value.code == 2
    assert "known are a, b, c" in capsys.readouterr().err
