"""`scripts/hub NAME`: queries the admin port of a running hub, and prints the answer."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from addons.telemetry.observation import VERDICTS, from_json, line
from addons.ui.commands import attach, pods
from addons.ui.commands.asking import JSON, NoAnswer, open_page, write_new
from addons.ui.reports.text import ALARMS, TEXTS, trial_text
from kube.log_lines import printable, printable_lines
from kube.option import FlagParser

_UNITS = {"s": 1, "m": 60, "h": 3600}


def seconds(text: str) -> int:
    """Parse a duration such as `90s`, `5m` or `2h`. ArgumentTypeError for anything else."""
    match = re.fullmatch(r"(\d{1,6})([smh])", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no time such as 90s, 5m or 2h")
    return int(match[1]) * _UNITS[match[2]]


def add_observe_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--component", default="", help="For example kube-proxy.")
    parser.add_argument("--resource", default="", help="Plural, for example endpointslices.")
    parser.add_argument("--namespace", default="")
    parser.add_argument("--verdict", choices=VERDICTS, default="", help="Only requests with this verdict.")
    parser.add_argument(
        "--events",
        action="store_true",
        help="Also the events of watches, even those that filters hide.",
    )
    parser.add_argument(
        "--since", type=seconds, help="How far back: 90s, 5m, 2h. Default: all that the hub has."
    )
    parser.add_argument(
        "--follow", action="store_true", help="Follow new lines; without --since, print only those."
    )
    parser.add_argument(
        *("-o", "--output"),
        choices=("text", "wide", "json"),
        default="text",
        help="wide: date, reason and version, too; json: an object a line.",
    )


def query_of(options: argparse.Namespace) -> dict[str, str]:
    """Return the admin port's query for these options."""
    named = {name: getattr(options, name) for name in ("component", "resource", "namespace", "verdict")}
    flags = {name: "1" for name in ("events", "follow") if getattr(options, name)}
    since = {"since": str(options.since)} if options.since is not None else {}
    return {**{name: value for name, value in named.items() if value}, **flags, **since}


def show_lines(lines: Iterable[bytes], output: str) -> None:
    """Print the hub's lines as they arrive, until the stream ends."""
    has_colours = sys.stdout.isatty()
    for raw in lines:
        if not raw.strip():
            continue
        values = json.loads(raw)
        if "hint" in values:
            print(f"edgehub: {values['hint']}", file=sys.stderr)
        elif "dropped" in values:
            print(
                f"edgehub: {values['dropped']} lines are left out: they came faster than they were read",
                file=sys.stderr,
            )
        elif output == "json":
            print(raw.decode().rstrip("\n"), flush=True)
        else:
            text = line(from_json(values), wide=output == "wide", has_colours=has_colours)
            print(text, flush=True)


NO_COPY_STATUS = 3
"""Exit status if the hub has no copy on which to try the rules."""
ADMIN = "http://127.0.0.1:10267"
"""Admin port of a hub with default options."""

type Asked = argparse.Namespace


def run(arguments: Sequence[str]) -> int:
    """Run one subcommand. Return the exit status, 1 if the hub does not answer. Invalid flags exit the process with
    status 2.

    If the output is closed early, as by `| head`, end silently with a shell's status for SIGPIPE.
    """
    parser = make_parser()
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        options.own.error(f"unrecognized arguments: {' '.join(unknown)}")
    do: Callable[[Asked], int] = options.do
    try:
        status = do(options)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        return end_output()
    except NoAnswer as error:
        print(printable(str(error)), file=sys.stderr)
        return 1


def end_output() -> int:
    """Discard further output, whose reader has left; return a shell's status for SIGPIPE."""
    # Otherwise Python reports the broken pipe again when it exits.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 128 + signal.SIGPIPE


def _report(options: Asked) -> int:
    return _show(options, _ask(options, options.name))


def _show(options: Asked, report: str) -> int:
    print(
        report if options.json else _in_red(printable_lines(TEXTS[options.name](json.loads(report)))), end=""
    )
    return 0


def _in_red(text: str) -> str:
    """On a terminal, colour lines about drills and closed listeners red."""
    if not sys.stdout.isatty():
        return text
    lines = text.splitlines(keepends=True)
    return "".join(f"\x1b[1;31m{line}\x1b[0m" if line.startswith(ALARMS) else line for line in lines)


def _link(options: Asked) -> int:
    if not options.link:
        return _report(options)
    numbers = {"kbps": options.kbps, "ms": options.ms, "minutes": options.minutes}
    query = {
        "link": options.link,
        **{name: str(number) for name, number in numbers.items() if number is not None},
    }
    return _show(options, _ask(options, "link", query, body=b""))


def _explain(options: Asked) -> int:
    query = {name: getattr(options, name) for name in ("component", "resource", "namespace", "name", "verb")}
    explained = _ask(options, "explain", query, accept=JSON if options.json else "text/plain")
    print(printable_lines(explained), end="")
    return 0


def _dump(options: Asked) -> int:
    query = {name: getattr(options, name) for name in ("resource", "namespace", "name", "as")}
    print(_ask(options, "dump", query, accept="*/*"), end="")
    return 0


def _observe(options: Asked) -> int:
    with suppress(KeyboardInterrupt), open_page(options.admin, "observe", query_of(options)) as answer:
        show_lines(answer, options.output)
    return 0


def _kubeconfig(options: Asked) -> int:
    url = json.loads(_ask(options, "status"))["url"]
    if not url:
        raise NoAnswer("the hub has no plain port, and lends the node's identity nowhere else: see --port")
    # client-node requires this for plain http; it has no effect without TLS.
    print(
        f"""\
apiVersion: v1
kind: Config
current-context: edgehub
clusters: [{{name: edgehub, cluster: {{server: "{url}", insecure-skip-tls-verify: true}}}}]
contexts: [{{name: edgehub, context: {{cluster: edgehub, user: node}}}}]
users: [{{name: node, user: {{}}}}]"""
    )
    return 0


def _rules(options: Asked) -> int:
    return _try(options) if options.action else _report(options)


def _try(options: Asked) -> int:
    try:
        text = sys.stdin.buffer.read() if options.file == "-" else Path(options.file).read_bytes()
    except OSError as error:
        raise NoAnswer(f"{options.file}: {error.strerror}") from None
    answer = _ask(options, "rules/try", body=text)
    trial = json.loads(answer)
    print(answer if options.json else printable_lines(trial_text(trial)), end="")
    is_loss = any(trial["lost"].values()) and not options.allow_loss
    if trial["problems"] or is_loss or not trial["complete"]:
        return 1
    return NO_COPY_STATUS if trial["untried"] else 0


def _support(options: Asked) -> int:
    with open_page(options.admin, "support", accept="*/*") as answer:
        print(write_new(options.path, answer.read()))
    return 0


def _ask(
    options: Asked,
    page: str,
    query: Mapping[str, str] | None = None,
    *,
    accept: str = JSON,
    body: bytes | None = None,
) -> str:
    """Return the hub's answer to a GET, or to a POST of `body`, with a final newline. NoAnswer as in `open_page`."""
    with open_page(options.admin, page, query, accept=accept, body=body) as answer:
        text = answer.read().decode()
    return text if text.endswith("\n") or not text else text + "\n"


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the subcommands and their flags."""
    parser = FlagParser(
        prog="edgehub", description="Ask a running hub. Without a command, the hub itself runs: see --help."
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def add(name: str, do: Callable[[Asked], int], text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text)
        made.add_argument("--admin", default=ADMIN, help=f"The hub's admin port. Default: {ADMIN}.")
        made.set_defaults(do=do, own=made, name=name)
        return made

    for name, text in REPORTS.items():
        _add_json(add(name, _report, text))
    _add_explain(
        add("explain", _explain, "Explain why a component sees an object, or a resource, as it does.")
    )
    add_observe_flags(
        add("observe", _observe, "Print each component's requests and their results, a line each.")
    )
    attach.add_flags(
        add("attach", attach.run, "Show a running hub's flows in an interface of mitmproxy, or store them.")
    )
    rules = add("rules", _rules, "Print the rules in force; `rules try FILE`: what an edit would change.")
    _add_json(rules)
    rules.add_argument("action", nargs="?", choices=("try",), help="Compare an edit with what the hub has.")
    rules.add_argument("file", nargs="?", default="-", help="The edited ConfigMap, or - for standard input.")
    rules.add_argument(
        "--allow-loss",
        action="store_true",
        help="Exit with status 0 even if a component loses objects or endpoints.",
    )
    _add_link(add("link", _link, "Rehearse an outage, or a slow link; without an argument, print the state."))
    _add_dump(add("dump", _dump, "Print the hub's copy of a resource as YAML, or a component's view of it."))
    add(
        "kubeconfig",
        _kubeconfig,
        "Print a kubeconfig for kubectl on this node: through the hub, with the node's rights, in outages too.",
    )
    pods.add_flags(
        add(
            "pods",
            pods.run,
            "List this node's pods that wait for an update; `pods upgrade NAME` updates one.",
        )
    )
    support = add("support", _support, "Write an archive for support: reports, metrics and log, no secrets.")
    support.add_argument("path", help="A new file, for example edgehub-support.tar.gz.")
    return parser


REPORTS = {
    "status": "Print the hub's state.",
    "components": "List the components of the last hour.",
    "sources": "List the hub's lists and watches of the cloud.",
    "views": "What components are shown.",
    "watchers": "Open watches.",
    "journal": "List writes that wait for the cloud, and those that never reached it.",
}
"""The reports without arguments."""
NAMES = (*REPORTS, "explain", "observe", "attach", "rules", "link", "dump", "kubeconfig", "pods", "support")
"""The names of all subcommands."""


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="For tools.")


def _add_explain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--component", required=True, help="For example kube-proxy.")
    parser.add_argument("--resource", required=True, help="Plural, for example endpointslices.")
    parser.add_argument("--namespace", default="")
    parser.add_argument("--name", default="", help="One object; without it, all that is hidden or changed.")
    parser.add_argument("--verb", choices=("get", "list", "watch"), default="list")
    _add_json(parser)


def _add_link(parser: argparse.ArgumentParser) -> None:
    _add_json(parser)
    parser.add_argument("link", nargs="?", choices=("offline", "online", "slow"))
    parser.add_argument("kbps", nargs="?", type=int, help="slow: kilobits a second from the cloud.")
    parser.add_argument("ms", nargs="?", type=int, help="slow: milliseconds until an answer begins.")
    parser.add_argument("--minutes", type=int, help="Minutes until the drill ends. Default: 10.")


def _add_dump(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("resource", nargs="?", default="", help="Plural; without it, list the resources.")
    parser.add_argument("--namespace", default="")
    parser.add_argument("--name", default="")
    parser.add_argument("--as", metavar="COMPONENT", default="", help="What this component sees.")
