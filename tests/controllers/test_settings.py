"""The command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from controllers.settings import Settings, parse_controllers, parse_settings

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
def test_which_controllers_run(text: str, chosen: str) -> None:
    assert parse_controllers(text, KNOWN) == frozenset(chosen)


@pytest.mark.parametrize("text", ["d", "*,-d", "A"])
def test_an_unknown_controller_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="there is no controller"):
        parse_controllers(text, KNOWN)


def test_defaults() -> None:
    assert parse_settings([], KNOWN) == Settings(controllers=frozenset(KNOWN))


def test_every_option() -> None:
    options = "--kubeconfig k --namespace n --controllers a --listen 127.0.0.1 --admin-port 0"
    more = "--no-leader-elect --trigger-annotation openyurt.io/update-trigger --verbose"
    assert parse_settings([*options.split(), *more.split()], KNOWN) == Settings(
        kubeconfig=Path("k"),
        namespace="n",
        controllers=frozenset("a"),
        listen="127.0.0.1",
        admin_port=0,
        leader_elect=False,
        trigger_annotation="openyurt.io/update-trigger",
        verbose=True,
    )


@pytest.mark.parametrize("port", ["0", "9443"])
def test_the_webhook_port_is_accepted_and_changes_nothing(port: str) -> None:
    assert parse_settings(["--webhook-port", port], KNOWN) == parse_settings([], KNOWN)


def test_a_webhook_port_of_one_s_own_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_settings(["--webhook-port", "8443"], KNOWN)
    assert ended.value.code == 2
    assert "--webhook-port" in capsys.readouterr().err


def test_the_help_says_that_there_are_no_webhooks(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_settings(["--help"], KNOWN)
    assert "registers no webhooks" in " ".join(capsys.readouterr().out.split())


def test_a_wrong_option_ends_the_process(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_settings(["--controllers", "d"], KNOWN)
    assert ended.value.code == 2
    assert "known are a, b, c" in capsys.readouterr().err
