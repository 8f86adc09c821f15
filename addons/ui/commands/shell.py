"""`scripts/hub NAME`: asks the admin port of a running hub, and prints what it says."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import ProxyHandler, Request, build_opener

ADMIN = "http://127.0.0.1:10267"
"""The admin port of a hub with the default options."""
TIMEOUT = 10.0
"""Seconds; the answer is made of what the hub has in memory."""
QUESTION = ("component", "resource", "namespace", "name", "verb")


def run(arguments: Sequence[str]) -> int:
    """Run one subcommand; the exit status, 1 when the hub cannot be asked. Bad flags end the process with status 2."""
    asked = _parser().parse_args(arguments)
    query = urlencode({name: getattr(asked, name) for name in QUESTION})
    accept = "application/json" if asked.json else "text/plain"
    url = f"{asked.admin.rstrip('/')}/debug/explain?{query}"
    if not url.startswith(("http://", "https://")):
        print(f"{asked.admin} is no http URL", file=sys.stderr)
        return 1
    request = Request(url, headers={"Accept": accept})  # noqa: S310 - the scheme was looked at
    # The admin port is on this node, whatever proxy the environment names.
    opener = build_opener(ProxyHandler({}))
    try:
        with opener.open(request, timeout=TIMEOUT) as answer:
            print(answer.read().decode(), end="")
    except (URLError, TimeoutError) as error:
        print(f"the hub at {asked.admin} does not answer: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="edgehub", description="Ask a running hub.")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_explain(commands.add_parser("explain", help="why a component sees an object as it does"))
    return parser


def _add_explain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--component", required=True, help="For example kube-proxy.")
    parser.add_argument("--resource", required=True, help="Plural, for example endpointslices.")
    parser.add_argument("--namespace", default="")
    parser.add_argument("--name", default="", help="One object; without it, only the route and the rules.")
    parser.add_argument("--verb", choices=("get", "list", "watch"), default="list")
    parser.add_argument("--admin", default=ADMIN, help=f"The hub's admin port. Default: {ADMIN}.")
    parser.add_argument("--json", action="store_true", help="For tools.")
