"""A mistake in the flags is told in one line."""

from __future__ import annotations

import pytest

from kube.flag_parser import FlagParser


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
def test_a_mistake_is_one_line(given: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = FlagParser(prog="hub")
    for number in range(40):
        parser.add_argument(f"--flag-{number}")
    parser.add_argument("--port", type=int)
    dump = parser.add_subparsers(required=False).add_parser("dump")
    dump.add_argument("--as", required=True)
    with pytest.raises(SystemExit, match="2"):
        parser.parse_args(given)
    assert capsys.readouterr().err.splitlines() == [line]
