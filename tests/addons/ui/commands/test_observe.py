"""`edgehub observe`: what it asks of the hub, and what it prints."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

import pytest

from addons.ui.commands.shell import add_observe_flags, query_of, show_lines
from tests.addons.support.samples import SEEN

LINE = json.dumps(SEEN.to_json()).encode() + b"\n"


@pytest.mark.parametrize(
    ("typed", "asked"),
    [
        ("", {}),
        ("--component kubelet --events", {"component": "kubelet", "events": "1"}),
        ("--since 5m --follow", {"since": "300", "follow": "1"}),
        ("--verdict offline --namespace a", {"verdict": "offline", "namespace": "a"}),
    ],
)
def test_what_is_asked(typed: str, asked: dict[str, str]) -> None:
    parser = argparse.ArgumentParser()
    add_observe_flags(parser)
    assert query_of(parser.parse_args(typed.split())) == asked


@pytest.mark.parametrize("typed", ["--since 5", "--since x", "--verdict lost"])
def test_what_cannot_be_asked(typed: str) -> None:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_observe_flags(parser)
    with pytest.raises(argparse.ArgumentError):
        parser.parse_args(typed.split())


def test_whoever_reads_the_first_lines_alone_sees_no_error() -> None:
    program = (
        "import sys; from addons.ui.commands.shell import show_lines; "
        f"show_lines(({LINE!r} for _ in range(100_000)), 'text')"
    )
    showing = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert showing.stdout is not None
    assert "kube-proxy" in showing.stdout.readline()
    showing.stdout.close()
    assert showing.stderr is not None
    assert (showing.wait(60), showing.stderr.read()) == (0, "")
    showing.stderr.close()


@pytest.mark.parametrize(
    ("output", "told"), [("text", "kube-proxy"), ("wide", "v42"), ("json", '"version": 42')]
)
def test_what_is_printed(output: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    show_lines([b'{"hint": "nobody"}\n', b"\n", LINE, b'{"dropped": 3}\n'], output)
    printed = capsys.readouterr()
    assert told in printed.out
    left_out = "edgehub: 3 lines are left out, for they came faster than they were read\n"
    assert printed.err == f"edgehub: nobody\n{left_out}"
