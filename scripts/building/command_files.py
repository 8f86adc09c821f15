"""Completion for bash and zsh, and the man pages, of `edgehub` and `edgehub-manager`.

This module makes them from the parsers behind `--help`. `scripts/release` puts them into the wheel, below `share`. No
program of the product imports it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import shtab
from argparse_manpage.manpage import Manpage

from addons import command
from addons.settings import version
from controllers import settings
from controllers.bindings import preview
from controllers.registry import CONTROLLERS
from kube.option import add_commands


def command_files() -> dict[Path, str]:
    """The text of each file, by its path below `share`."""
    files = {}
    for parser, summary in parsers():
        name = parser.prog
        files[Path("bash-completion/completions", name)] = shtab.complete_bash(parser)
        files[Path("zsh/site-functions", f"_{name}")] = shtab.complete_zsh(parser)
        page = Manpage(parser)
        page.description, page.manual, page.source = summary, "Edgehub", f"edgehub {version()}"
        files[Path("man/man1", f"{name}.1")] = str(page)
    return files


def parsers() -> Iterator[tuple[argparse.ArgumentParser, str]]:
    """Each command's whole parser, subcommands included, with what it is in a line."""
    manager = settings.make_parser(list(CONTROLLERS))
    others = argparse.ArgumentParser(add_help=False)
    render = {
        "help": "show what bindings would change",
        "parents": [preview.make_parser()],
        "add_help": False,
    }
    others.add_subparsers().add_parser("render", **render)  # type: ignore[arg-type]  # of mixed values
    add_commands(manager, others)
    for parser, summary in (
        (command.make_parser(has_commands=True), "the edge hub of a Kubernetes node"),
        (manager, "the cloud-side controllers of Edgehub"),
    ):
        complete_files(parser)
        yield parser, summary


def complete_files(parser: argparse.ArgumentParser) -> None:
    """Have paths completed as files, in the subcommands too."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for choice in action.choices.values():
                complete_files(choice)
        elif action.type is Path or action.metavar == "FILE" or action.dest in {"path", "file"}:
            action.complete = shtab.FILE  # type: ignore[attr-defined]  # shtab looks there
