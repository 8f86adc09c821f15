"""`scripts/clients`: the parsing of a client's lines, and the states that count as different."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.client_programs.checks import differs
from scripts.client_programs.client import Client
from scripts.client_programs.ecosystems import ECOSYSTEMS, SOURCES
from scripts.client_programs.program import table, verdict
from scripts.client_programs.site import PLAIN, STRAIGHT, TLS


def test_each_ecosystem_has_a_program_and_a_lock_file() -> None:
    pins = {
        "python": "requirements.txt",
        "javascript": "package-lock.json",
        "java": "pom.xml",
        "fabric8": "pom.xml",
        "rust": "Cargo.toml",
        "go": "go.sum",
    }
    assert {
        each.folder: (SOURCES / each.folder / pins[each.folder]).is_file() for each in ECOSYSTEMS
    } == dict.fromkeys(pins, True)


@pytest.mark.parametrize(
    ("lines", "wanted", "difference"),
    [
        ([], {}, "not synced"),
        ([("SYNCED", "", "")], {}, ""),
        ([("ADDED", "a", "1"), ("SYNCED", "", ""), ("MODIFIED", "a", "2")], {"a": "2"}, ""),
        ([("ADDED", "a", "1"), ("SYNCED", "", "")], {"a": "2"}, "1 not current: a"),
        ([("SYNCED", "", "")], {"a": "2"}, "1 missing: a"),
        ([("ADDED", "a", "1"), ("SYNCED", "", "")], {}, "1 ghosts: a"),
        ([("ADDED", "a", "1"), ("SYNCED", "", ""), ("DELETED", "a", "1")], {}, ""),
        ([("ADDED", "a", "1"), ("SYNCED", "", ""), ("LIST", "", "")], {}, ""),
    ],
)
def test_the_state_of_a_client_program_is_compared(
    tmp_path: Path, lines: list[tuple[str, str, str]], wanted: dict[str, str], difference: str
) -> None:
    said = [json.dumps(dict(zip(("type", "name", "version"), line, strict=True))) for line in lines]
    program = ("sh", "-c", 'printf "%s\\n" "$@"; exec sleep 60', "sh", "words of a library", *said)
    client = Client("client", program, tmp_path, "default", tmp_path)
    try:
        client._process.wait_for_line("default", 30)  # the arguments of every program come last
        assert client.difference(wanted) == difference
    finally:
        client.stop()


def test_only_a_difference_at_the_hub_is_an_error() -> None:
    wrong = {("Java", PLAIN): "1 missing: a", ("Java", STRAIGHT): "1 missing: a", ("Go", TLS): "1 ghosts: b"}
    assert [differs(wrong, *who) for who in wrong] == [False, False, True]
    found = [
        verdict(wrong, *who) for who in (("Java", PLAIN), ("Java", STRAIGHT), ("Go", TLS), ("Go", PLAIN))
    ]
    assert found == ["as straight", "fails", "DIFFERS", "ok"]
    shown = table("cached", ["Go"], {"list": wrong})
    assert "Go         TLS      DIFFERS\n    list: 1 ghosts: b" in shown
