"""`scripts/hub observe`: prints the lines that a running hub has of its requests, and those that come."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Iterable

from addons.telemetry.observation import VERDICTS, from_json, line

_UNITS = {"s": 1, "m": 60, "h": 3600}


def seconds(text: str) -> int:
    """`90s`, `5m`, `2h`; ValueError for anything else."""
    match = re.fullmatch(r"(\d{1,6})([smh])", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no time such as 90s, 5m or 2h")
    return int(match[1]) * _UNITS[match[2]]


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--component", default="", help="For example kube-proxy.")
    parser.add_argument("--resource", default="", help="Plural, for example endpointslices.")
    parser.add_argument("--namespace", default="")
    parser.add_argument("--verdict", choices=VERDICTS, default="", help="What became of a request.")
    parser.add_argument(
        "--events",
        action="store_true",
        help="The events of watches, too, those that filters hide among them.",
    )
    parser.add_argument(
        "--since", type=seconds, help="From so long ago: 90s, 5m, 2h. Without it all that the hub remembers."
    )
    parser.add_argument(
        "--follow", action="store_true", help="Go on with what comes. Without --since that alone."
    )
    parser.add_argument(
        *("-o", "--output"),
        choices=("text", "wide", "json"),
        default="text",
        help="wide: date, reason and version, too; json: an object a line.",
    )


def query_of(options: argparse.Namespace) -> dict[str, str]:
    """What the admin port is asked."""
    named = {name: getattr(options, name) for name in ("component", "resource", "namespace", "verdict")}
    flags = {name: "1" for name in ("events", "follow") if getattr(options, name)}
    since = {"since": str(options.since)} if options.since is not None else {}
    return {**{name: value for name, value in named.items() if value}, **flags, **since}


def show(lines: Iterable[bytes], output: str) -> None:
    """Print the lines of a hub as they come, until there are no more, or nobody reads them, `| head` for one."""
    try:
        _print(lines, output)
    except BrokenPipeError:
        # Python would tell of it once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print(lines: Iterable[bytes], output: str) -> None:
    has_colours = sys.stdout.isatty()
    for raw in lines:
        if not raw.strip():
            continue
        values = json.loads(raw)
        if "hint" in values:
            print(f"edgehub: {values['hint']}", file=sys.stderr)
        elif "dropped" in values:
            print(
                f"edgehub: {values['dropped']} lines are left out, for they came faster than they were read",
                file=sys.stderr,
            )
        elif output == "json":
            print(raw.decode().rstrip("\n"), flush=True)
        else:
            text = line(from_json(values), wide=output == "wide", has_colours=has_colours)
            print(text, flush=True)
