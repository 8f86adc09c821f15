"""An option is declared once, and a mistake in the flags is reported in one line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from kube.option import Files, FlagParser, add_flags, as_flags, option, options_of, read


def test_flags_are_generated_from_fields_and_parsed_into_settings(
    capsys: pytest.CaptureFixture[str],
) -> None:
    @dataclass(frozen=True)
    class Settings:
        """Three options of two groups."""

        peers: Files = option("", "Named [in the docs](x.md), as hub_mode says.", name="peer", begins="One")
        mode: Literal["a", "b"] = option("a", "Of `a` and 10 % `b`.", begins="Two")
        is_loud: bool = option(False, "Whether.")

    parser = FlagParser(prog="hub")
    add_flags(parser, options_of(Settings))
    typed = vars(parser.parse_args(["--peer", "x,y", "--is-loud"]))
    assert read(Settings, typed) == Settings((Path("x"), Path("y")), "a", is_loud=True)
    assert read(Settings, {}) == Settings()
    shown = " ".join(parser.format_help().split())
    assert (
        "One: --peer PEER Named in the docs, as --mode says. Two: --mode {a,b} Of a and 10 % b. Default: a."
        in shown
    )
    with pytest.raises(SystemExit):
        parser.parse_args(["--mode", "c"])
    assert "--mode must be one of a, b, not 'c'" in capsys.readouterr().err
    with pytest.raises(ValueError, match="hub_mode must be one of a, b, not 'c'"):
        read(Settings, {"mode": "c"}, "hub_")


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (["--prot"], "hub: error: unrecognized arguments: --prot; `hub --help` names all flags"),
        (
            ["--port", "x"],
            "hub: error: argument --port: invalid int value: 'x'; `hub --help` names all flags",
        ),
        (
            ["dump"],
            "hub dump: error: the following arguments are required: --as; `hub dump --help` names all flags",
        ),
    ],
)
def test_an_invalid_flag_is_reported_in_one_line(
    given: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = FlagParser(prog="hub")
    for number in range(40):
        parser.add_argument(f"--flag-{number}")
    parser.add_argument("--port", type=int)
    dump = parser.add_subparsers(required=False).add_parser("dump")
    dump.add_argument("--as", required=True)
    with pytest.raises(SystemExit, match="2"):
        parser.parse_args(given)
    assert capsys.readouterr().err.splitlines() == [line]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("hub_tls_cert /c cannot be read", "--tls-cert /c cannot be read"),
        ("say hub_server", "say --server"),
        ("github_x", "github_x"),
    ],
)
def test_error_messages_name_the_flag(said: str, expected: str) -> None:
    assert as_flags(said) == expected
