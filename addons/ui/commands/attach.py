"""`scripts/hub attach`: shows or saves the flows of a running hub, in a separate process."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from addons.ui.attached import HOLD_NOT_ALLOWED
from addons.ui.commands.asking import NoAnswer, new_file, open_page
from addons.ui.commands.web_interface import run_web

VIEWER = Path(__file__).parent / "viewer.py"
"""The script that mitmproxy runs in that process."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--ui", choices=("web", "console"), default="", help="Show flows in an interface.")
    where.add_argument(
        *("-w", "--write"),
        metavar="FILE",
        default="",
        help="Write each finished flow to a new file, as mitmproxy does, until Ctrl-C.",
    )
    parser.add_argument(
        "--hold",
        metavar="FILTER",
        default="",
        help="Hold flows that match this mitmproxy filter expression, like the interface's own option intercept.",
    )
    parser.add_argument(
        "rest", nargs="*", metavar="-- FLAG", help="With an interface, what follows -- goes to mitmproxy."
    )


def run(options: argparse.Namespace) -> int:
    """Show or save flows until the user ends it. NoAnswer if the hub refuses, or the file cannot be written."""
    if not options.write:
        return _show(options.admin, options.ui, options.hold, options.rest)
    if options.hold:
        raise NoAnswer("edgehub: --hold needs an interface that can release a flow: --ui web or console")
    return _write(options.admin, options.write)


def _show(admin: str, ui: str, hold: str, rest: Sequence[str]) -> int:
    # Imported late: mitmproxy's heaviest modules, which no other command needs.
    from mitmproxy import flowfilter  # noqa: PLC0415 - as above
    from mitmproxy.tools import main as programs  # noqa: PLC0415 - as above

    from addons.ui.commands.attached_flows import records  # noqa: PLC0415 - as above

    if ui == "console" and not sys.stdout.isatty():
        raise NoAnswer("edgehub: --ui console needs a terminal: attach in one, or with --ui web")
    # Fail before the console hides the reason of a refusal.
    with open_page(admin, "flows", accept="*/*") as stream:
        received = next(records(stream), {})
    if hold and not received.get("may_hold"):
        raise NoAnswer(f"edgehub: {HOLD_NOT_ALLOWED}")
    try:
        flowfilter.parse(hold or "~all")
    except ValueError as error:
        raise NoAnswer(f"edgehub: --hold: {error}") from None
    sets = ["server=false", f"edgehub_admin={admin}", *([f"intercept={hold}"] if hold else [])]
    arguments = [*(part for setting in sets for part in ("--set", setting)), "-s", str(VIEWER), *rest]
    sys.argv[:] = ["edgehub attach", *rest]  # mitmproxy's messages about flags name it
    (run_web if ui == "web" else programs.mitmproxy)(arguments)
    return 0


def _write(admin: str, file: str) -> int:
    from addons.ui.commands.attached_flows import records  # noqa: PLC0415 - as above

    try:
        out = new_file(file)
    except OSError as error:
        raise NoAnswer(f"{file}: {error.strerror}") from None
    with out:
        for signal_ in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signal_, signal.default_int_handler)
        try:
            with open_page(admin, "flows", accept="*/*") as stream, suppress(KeyboardInterrupt):
                _write_flows(records(stream), out, file)
        except NoAnswer:
            if not out.tell():
                Path(file).unlink()
            raise
    return 0


def _write_flows(received: Iterable[dict[str, Any]], out: BinaryIO, file: str) -> None:
    from mitmproxy.io import FlowWriter  # noqa: PLC0415 - as above

    from addons.ui.commands.attached_flows import AttachedFlows  # noqa: PLC0415 - as above
    from addons.ui.flows.bodies import decoded  # noqa: PLC0415 - as above
    from addons.ui.masking import DEFAULT_VISIBILITY, Visible  # noqa: PLC0415 - as above

    flows, writer, count, is_over, visible = AttachedFlows(), FlowWriter(out), 0, "", DEFAULT_VISIBILITY
    try:
        for record in received:
            if "visible" in record:
                visible = Visible(*record["visible"])
            elif "flow" in record:
                update = flows.apply_record(record)
                if update.is_over:
                    with decoded(update.flow, visible):
                        writer.add(update.flow)
                    out.flush()
                    count += 1
            elif "dropped" in record:
                print(f"edgehub: {record['dropped']} flows are left out", file=sys.stderr)
            is_over = record.get("ended", "")
    finally:
        rest = flows.rest()
        for flow in rest:
            writer.add(flow)
        print(f"{file}: {count + len(rest)} flows{', ' * bool(is_over)}{is_over}", file=sys.stderr)
