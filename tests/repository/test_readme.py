"""The README is short, shows commands that work, and leads to every page; links between pages resolve."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from addons import command
from addons.ui.commands import shell
from controllers import manager
from scripts.benchmark import program as bench_program
from scripts.building import render
from scripts.conformance_tests import program as conformance_program
from scripts.demonstration import program as demo_program
from tests.repository.support.pages import DOCS, FLAG, README, headings, links, pages
from tests.repository.support.tree import label

LINES = 150
"""At most, of the README: what a newcomer reads in five minutes."""

SCRIPT = re.compile(r"scripts/(?P<name>[a-z]+)(?P<rest>[^`\n#]*)")

FOREIGN = {"--admission-control-config-file", "--default-unreachable-toleration-seconds", "--set"}
"""Flags of mitmproxy, which follow `--`, and of kube-apiserver."""


def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= LINES


def test_the_readme_leads_to_every_page() -> None:
    leads_to = {(README.parent / target.partition("#")[0]).resolve() for target in links(README.read_text())}
    assert set(DOCS.glob("*.md")) <= leads_to


def broken_links(path: Path, text: str) -> Iterator[str]:
    """The links of a page that lead nowhere. Links to other sites are not followed."""
    for target in links(text):
        if target.startswith(("https://", "http://")):
            continue
        name, _, anchor = target.partition("#")
        other = (path.parent / name).resolve() if name else path
        if not other.exists() or (anchor and anchor not in headings(other.read_text())):
            yield f"{label(path)}: {target}"


def test_links_between_pages_resolve() -> None:
    wrong = [found for path in pages() for found in broken_links(path, path.read_text())]
    assert not wrong, "\n".join(wrong)


def test_broken_links_are_found() -> None:
    text = "[a](#no-such-heading) [b](docs/no-such-page.md) [c](docs/security.md#bounds) [d](https://x.y)"
    assert list(broken_links(README, text)) == [
        "README.md: #no-such-heading",
        "README.md: docs/no-such-page.md",
    ]


SUBCOMMANDS = frozenset({*shell.REPORTS, "explain", "rules", "link", "dump", "support"})
"""What the hub's program does besides running the hub."""


# -- commands ------------------------------------------------------------------------------------------------------


def help_of(run: Callable[[], object]) -> str:
    """The output of a command's `--help`."""
    with contextlib.redirect_stdout(io.StringIO()) as printed, pytest.raises(SystemExit):
        run()
    return printed.getvalue()


@pytest.fixture(scope="module")
def flags() -> dict[str, set[str]]:
    """The flags of each command."""
    asked = pytest.MonkeyPatch()
    asked.setattr("sys.argv", ["program", "--help"])
    helps = {
        "hub": help_of(lambda: command.main(["--help"])),
        **{
            f"hub {name}": help_of(lambda name=name: command.main([name, "--help"]))  # type: ignore[misc]  # bound now
            for name in SUBCOMMANDS
        },
        "edgehub install": help_of(lambda: command.main(["install", "--help"])),
        "manager": help_of(lambda: manager.main(["--help"])),
        "demo": help_of(demo_program.main),
        "bench": help_of(bench_program.main),
        "conformance": help_of(conformance_program.main),
        "render": help_of(render.main),
    }
    asked.undo()
    return {name: set(FLAG.findall(text)) for name, text in helps.items()} | {"test": {"--real"}}


def commands(text: str) -> Iterator[tuple[str, set[str]]]:
    """The scripts that a text runs, each with the flags that it is given."""
    for found in SCRIPT.finditer(text):
        rest = found["rest"].partition(" -- ")[0]
        first = "".join(rest.split()[:1]).strip("`")
        name = f"hub {first}" if found["name"] == "hub" and first in SUBCOMMANDS else found["name"]
        yield name, set(FLAG.findall(rest))


@pytest.mark.parametrize("page", pages(), ids=label)
def test_commands_have_the_flags_that_they_are_shown_with(page: Path, flags: dict[str, set[str]]) -> None:
    wrong = [
        f"scripts/{name}: {', '.join(sorted(given - flags.get(name, set())))}"
        for name, given in commands(page.read_text())
        if given - flags.get(name, set())
    ]
    assert not wrong, "\n".join(wrong)


def test_a_flag_by_itself_is_one_of_some_command(flags: dict[str, set[str]]) -> None:
    known = set[str]().union(*flags.values())
    alone = {flag for page in pages() for flag in re.findall(r"`(--[a-z-]+)[^`]*`", page.read_text())}
    assert len(alone) > 20
    assert alone - known - FOREIGN == set()


def test_commands_of_a_text() -> None:
    text = "`scripts/hub explain --name x` and\nscripts/hub --port 1 -- --set x  # --no\n"
    assert list(commands(text)) == [("hub explain", {"--name"}), ("hub", {"--port"})]
