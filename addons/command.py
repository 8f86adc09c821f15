"""`scripts/hub`: turns the hub's flags into mitmproxy's options and runs mitmdump, or one of mitmproxy's interfaces."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from mitmproxy.options import Options
from mitmproxy.tools import cmdline
from mitmproxy.tools import main as mitmproxy_main
from mitmproxy.tools.dump import DumpMaster

from addons.options import OPTIONS
from addons.settings import listener_modes, parse_settings
from addons.ui.explain_command import explain

HUB = Path(__file__).parent / "hub.py"


def main(arguments: Sequence[str]) -> None:
    """Run in the foreground until SIGTERM, or ask a running hub: `explain`. Bad flags end the process with status 2."""
    if arguments[:1] == ["explain"]:
        sys.exit(explain(arguments[1:]))
    parser = _parser()
    own, rest = _split(arguments)
    asked = parser.parse_args(own)
    values = {name: getattr(asked, name) for name, *_ in OPTIONS}
    try:
        modes = listener_modes(parse_settings(values))
    except ValueError as error:
        parser.error(str(error))
    options = [*_listeners(modes), *_options(values), "-s", str(HUB), *rest]
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=LOG_FORMAT)
    # mitmproxy logs each connection and stream at INFO.
    logging.getLogger("mitmproxy").setLevel(logging.WARNING)
    _run(asked.ui, options)


LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class QuietMaster(DumpMaster):
    """mitmdump without its own output: standard error has the log, and flows are not printed."""

    def __init__(self, options: Options) -> None:
        super().__init__(options, with_termlog=False, with_dumper=False)


FRAME = {"server": "false"}
"""The listeners are opened by the last addon, when all are loaded."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/hub",
        description="The edge hub of a Kubernetes node. Each flag is also an option hub_… of mitmproxy.",
        epilog="What follows -- goes to mitmproxy as it is. `scripts/hub explain --help`: ask a running hub.",
    )
    for name, kind, default, text in OPTIONS:
        shown = "" if default == "" else f" Default: {default}."
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            dest=name,
            type=kind,
            default=default,
            help=text.replace("%", "%%") + shown,
        )
    parser.add_argument(
        "--ui", choices=("none", "console", "web"), default="none", help="mitmproxy's interface."
    )
    return parser


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    given = list(arguments)
    if "--" not in given:
        return given, []
    at = given.index("--")
    return given[:at], given[at + 1 :]


def _listeners(modes: dict[str, str]) -> list[str]:
    return [part for spec in modes for part in ("--mode", spec)]


def _options(values: dict[str, object]) -> list[str]:
    settings = {**FRAME, **{f"hub_{name}": value for name, value in values.items() if value != ""}}
    return [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]


def _run(ui: str, options: list[str]) -> None:
    if ui == "console":
        mitmproxy_main.mitmproxy(options)
    elif ui == "web":
        mitmproxy_main.mitmweb(options)
    else:
        mitmproxy_main.run(QuietMaster, cmdline.mitmdump, options)


if __name__ == "__main__":
    main(sys.argv[1:])
