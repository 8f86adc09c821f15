"""The program `edgehub` (`scripts/hub` in a checkout): parses the flags, and runs the hub or queries a running one."""

from __future__ import annotations

import argparse
import gc
import logging
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mitmproxy.exceptions import OptionsError

from addons.options import Options, UnknownOptionError, refuse_unknown
from addons.settings import OPTIONS, Settings, parse_settings
from addons.startup.handed_sockets import handed
from addons.startup.lean_imports import leave_out_unused
from addons.telemetry.log import Format, Level, log_to_stderr
from kube.option import (
    VERSION,
    FlagParser,
    Option,
    add_commands,
    add_flags,
    as_flags,
    option,
    options_of,
    read,
)

HUB = Path(__file__).parent / "hub.py"
NODE_COMMANDS = frozenset({"doctor", "install", "uninstall", "upgrade", "manifests", "fleet"})
"""The subcommands of `addons.install.commands`; all others query a running hub."""
MITMPROXY_LEVELS = {"debug": "debug", "info": "info", "warning": "warn", "error": "error"}
"""mitmproxy's names of the hub's log levels."""


@dataclass(frozen=True, slots=True)
class ProgramFlags:
    """The flags of the program that are no mitmproxy options."""

    ui: Literal["none", "console", "web"] = option(
        "none", "mitmproxy's [interface](seeing.md).", begins="Interfaces and log"
    )
    log_level: Level = option(
        "info", "Least logged level. Libraries log `info` at most: below it they log tokens."
    )
    log_format: Format = option(
        "text",
        "Text, or one JSON object a line, on standard error. An interface has a log of its own.",
    )


def _sorted(options: Sequence[Option]) -> tuple[Option, ...]:
    """Sort the settings by group."""
    order = list(dict.fromkeys(option.group for option in OPTIONS))
    return tuple(sorted(options, key=lambda option: order.index(option.group)))


PROGRAM_FLAGS = options_of(ProgramFlags)
FLAGS = _sorted((*PROGRAM_FLAGS, *OPTIONS))
"""All flags of the hub, by group."""


def program() -> None:
    """Run the command `edgehub` of an installed wheel."""
    main(sys.argv[1:])


def main(arguments: Sequence[str]) -> None:
    """Run in the foreground until SIGTERM, or run the subcommand that comes first, such as `explain`.

    Ends the process with status 2 for flags that cannot be read, and with status 1 when the hub cannot start; one line
    on standard error gives the reason.
    """
    if arguments and arguments[0] in NODE_COMMANDS:
        from addons.install import commands  # noqa: PLC0415 - needs no module of a running hub either

        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.exit(commands.run(arguments))
    if arguments and not arguments[0].startswith("-"):
        # A shell that queries a running hub needs no module that runs one.
        from addons.ui.commands import shell  # noqa: PLC0415 - as above

        if arguments[0] not in shell.NAMES:
            asking, node = ", ".join(shell.NAMES), ", ".join(sorted(NODE_COMMANDS))
            print(
                f"edgehub: there is no command {arguments[0]!r}. {asking}: ask a running hub. {node}: need none. "
                "Without a command the hub runs: see edgehub --help.",
                file=sys.stderr,
            )
            sys.exit(2)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.exit(shell.run(arguments))
    own, rest = _split(arguments)
    parser = make_parser(has_commands=not {"-h", "--help"}.isdisjoint(own))
    options = vars(parser.parse_args(own))
    flags = read(
        ProgramFlags,
        {
            program_flag.name: options.pop(program_flag.name)
            for program_flag in PROGRAM_FLAGS
            if program_flag.name in options
        },
    )
    if flags.ui == "none":
        leave_out_unused()
    try:
        specifications = _specifications(rest, flags.ui)
        set_here = dict(specification.partition("=")[::2] for specification in specifications)
        refuse_unknown(set_here)
        configured = _configuration(set_here.get("confdir"))
        given = {**configured, **{f"hub_{name}": value for name, value in options.items()}}
        settings = _check(given, set_here)
    except UnknownOptionError as error:
        parser.error(str(error))  # it was not typed as a flag
    except ValueError as error:
        parser.error(as_flags(str(error)))
    handed.adopt_sockets()
    handed.open(settings.early_listeners)
    Options.are_flags = True
    if flags.ui == "none":
        log_to_stderr(flags.log_level, flags.log_format)
        _run_alone(given, specifications)
    else:
        # The interface has a log of its own, and the terminal is its screen.
        logging.getLogger("mitmproxy").setLevel(logging.WARNING)
        _run_interface(flags, settings, options, rest)


def make_parser(*, has_commands: bool = False) -> argparse.ArgumentParser:
    """Return a parser of the hub's flags by group, with the subcommands first if wanted."""
    parser = FlagParser(
        prog="edgehub",
        usage="edgehub [FLAG ...] [-- FLAG ...]\n       edgehub COMMAND ...",
        description="The edge hub of a Kubernetes node. Without a command the hub runs.",
        epilog="Each flag but --ui and --log-… is also an option hub_… of mitmproxy. With an interface, what "
        "follows -- goes to mitmproxy as it is; without one, --set NAME=VALUE does.",
        add_help=False,
    )
    if has_commands:
        from addons.install import commands  # noqa: PLC0415 - a hub that runs needs neither
        from addons.ui.commands import shell  # noqa: PLC0415 - as above

        add_commands(parser, shell.make_parser(), commands.make_parser())
    add_flags(parser, FLAGS)
    program = parser.add_argument_group("The program itself")
    program.add_argument("-h", "--help", action="help", help="Print this, and end.")
    program.add_argument(
        "--version", action="version", version=f"edgehub {VERSION}", help="Print the version, and end."
    )
    return parser


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    given = list(arguments)
    if "--" not in given:
        return given, []
    at = given.index("--")
    return given[:at], given[at + 1 :]


def _specifications(rest: Sequence[str], ui: str) -> list[str]:
    """Return the NAME=VALUE of each `--set` for mitmproxy; ValueError for anything else, unless an interface accepts
    it."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--set", action="append", default=[])
    try:
        options, others = parser.parse_known_args(list(rest))
    except argparse.ArgumentError as error:
        raise ValueError(f"after --: {error}") from None
    if ui == "none" and others:
        raise ValueError(
            f"{others[0]} after -- is for mitmproxy's interfaces: give --ui console or --ui web with it, "
            "or start `mitmdump -s addons/hub.py`"
        )
    specifications: list[str] = options.set
    return specifications


def _check(given: Mapping[str, Any], set_here: Mapping[str, str]) -> Settings:
    """Parse the settings; ValueError if they are unusable. `--set` takes precedence."""
    values = {}
    for declared in OPTIONS:
        name = f"hub_{declared.name}"
        values[declared.name] = (
            declared.from_text(set_here[name]) if name in set_here else given.get(name, declared.default)
        )
    return parse_settings(values)


def _configuration(folder: str | None) -> Mapping[str, Any]:
    """Read the options in mitmproxy's configuration file; ValueError if it is unreadable."""
    from mitmproxy import options, optmanager  # noqa: PLC0415 - behind leave_out_unused

    file = Path(folder or options.CONF_DIR).expanduser() / "config.yaml"
    try:
        values: Mapping[str, Any] = optmanager.parse(file.read_text()) if file.is_file() else {}
    except (OSError, UnicodeDecodeError, OptionsError) as error:
        raise ValueError(f"{file}: {error}") from None
    refuse_unknown(values)
    return values


def _run_alone(given: Mapping[str, Any], specifications: Sequence[str]) -> None:
    gc.disable()  # until the addon `memory` has frozen what is imported here: hardly any of it is garbage
    try:
        # These import mitmproxy's proxy: an interface needs all of it, `explain` nothing.
        from addons import hub  # noqa: PLC0415 - as above
        from addons.proxy import master  # noqa: PLC0415 - as above

        master.run(hub.addon, given, specifications)
    except OptionsError as error:
        print(f"edgehub: {as_flags(str(error))}", file=sys.stderr)
        sys.exit(2)
    finally:
        gc.enable()


def _run_interface(
    flags: ProgramFlags, settings: Settings, chosen: Mapping[str, Any], rest: Sequence[str]
) -> None:
    """Run with an interface.

    A fault that prevents the interface from starting is reported in one line here: a screen or a traceback would hide
    it.
    """
    from mitmproxy.tools import main as programs  # noqa: PLC0415 - the heaviest of mitmproxy's modules

    from addons.startup.preflight import credentials_of  # noqa: PLC0415 - imports OpenSSL
    from addons.ui.commands.web_interface import run_web  # noqa: PLC0415 - a hub alone needs none of it

    if flags.ui == "console" and not sys.stdout.isatty():
        sys.exit("edgehub: --ui console needs a terminal: start the hub in one, or with --ui web")
    try:
        credentials_of(settings)
    except ValueError as error:
        sys.exit(f"edgehub: {as_flags(str(error))}")
    options: dict[str, Any] = {"server": "false"}  # the last addon opens the listeners, when it can answer
    options |= {f"hub_{name}": value for name, value in chosen.items()}
    verbosity = "console_eventlog_verbosity" if flags.ui == "console" else "termlog_verbosity"
    options[verbosity] = MITMPROXY_LEVELS[flags.log_level]
    # mitmproxy writes a boolean in lower case.
    texts = {
        name: str(value).lower() if isinstance(value, bool) else value for name, value in options.items()
    }
    sets = [part for name, value in texts.items() for part in ("--set", f"{name}={value}")]
    arguments = [*sets, "-s", str(HUB), *rest]
    sys.argv[:] = [
        "edgehub",
        *rest,
    ]  # mitmproxy looks there for flags that it calls deprecated, such as --port
    if flags.ui == "web":
        run_web(arguments)
        return
    last = StartupErrors()
    logging.getLogger().addHandler(last)
    try:
        programs.mitmproxy(arguments)
    except (Exception, SystemExit):
        # mitmproxy's console fails where it is to end before its screen has begun.
        if not last.messages:
            raise
    finally:
        logging.getLogger().removeHandler(last)
    if last.messages:
        sys.exit("\n".join(f"edgehub: {message}" for message in last.messages))


class StartupErrors(logging.Handler):
    """Stores why the hub could not start until the console, which has the terminal and its own log, has ended."""

    def __init__(self) -> None:
        super().__init__(logging.CRITICAL)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


if __name__ == "__main__":
    main(sys.argv[1:])
