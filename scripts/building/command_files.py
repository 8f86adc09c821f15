"""Completion for bash and zsh, and the man pages, of `edgehub` and `edgehub-manager`.

This module makes them from the parsers behind `--help`. `scripts/release` puts them into the wheel, below `share`. No
program of the product imports it.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import shtab
from argparse_manpage.manpage import Manpage

from addons import command
from addons.install import commands as node_commands
from addons.settings import version
from addons.ui.commands import shell
from controllers import settings
from controllers.bindings import preview
from controllers.registry import CONTROLLERS

type Subcommand = tuple[str, str, argparse.ArgumentParser]
"""Name, what it does in a line, and its parser."""


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
    hub = command.make_parser()
    for action in hub._actions:
        # The default of one flag is the name of this machine, which must not get into a release.
        action.help = (action.help or "").replace(f"Default: {os.uname().nodename}.", "Default: the host's.")
    add(hub, [*subcommands(node_commands.make_parser()), *subcommands(shell.make_parser())])
    yield hub, "the edge hub of a Kubernetes node"
    manager = settings.make_parser(list(CONTROLLERS))
    add(manager, [("render", "show what bindings would change", preview.make_parser())])
    yield manager, "the cloud-side controllers of Edgehub"


def subcommands(parser: argparse.ArgumentParser) -> Iterator[Subcommand]:
    """The subcommands of a parser."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            texts = {each.dest: each.help or "" for each in action._choices_actions}
            yield from ((name, texts[name], each) for name, each in action.choices.items())


def add(parser: argparse.ArgumentParser, found: Iterable[Subcommand]) -> None:
    """Give a parser subcommands that the program finds by itself, and have paths completed as files."""
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    for name, text, each in found:
        commands.add_parser(
            name, help=text, description=each.description, epilog=each.epilog, parents=[each], add_help=False
        )
    for each in (parser, *commands.choices.values()):
        for action in each._actions:
            if action.type is Path or action.dest in {"path", "file"}:
                action.complete = shtab.FILE  # type: ignore[attr-defined]  # shtab looks there
