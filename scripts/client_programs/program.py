"""`scripts/clients`: runs client programs of six ecosystems at kube-apiserver and through a hub, and compares them.

For each route (relayed, cached, filtered) it prints a table of clients and checks, and the errors. A client that is
wrong at the hub and right at kube-apiserver is a difference. Clients that this machine cannot build are skipped.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts.client_programs.checks import CHECKS, ROUTES, Wrong, differs
from scripts.client_programs.ecosystems import ECOSYSTEMS, BuildError, Ecosystem, ensure_built
from scripts.client_programs.site import DOORS, STRAIGHT, Site, site
from tests.cloud.build import ensure_control_plane

type Outcomes = Mapping[str, Wrong]
"""The errors of clients, by check."""


def verdict(wrong: Wrong, ecosystem: str, door: str) -> str:
    if (ecosystem, door) not in wrong:
        return "ok"
    if door == STRAIGHT:
        return "fails"
    return "DIFFERS" if differs(wrong, ecosystem, door) else "as straight"


def table(route: str, ecosystems: Sequence[str], outcomes: Outcomes) -> str:
    """Format a row for each client at each door, with its errors below."""
    width = max(map(len, (*CHECKS, "as straight")))
    lines = [f"{route:<10} {'':<8} " + "  ".join(f"{check:<{width}}" for check in outcomes)]
    for name in ecosystems:
        for door in DOORS:
            cells = "  ".join(f"{verdict(wrong, name, door):<{width}}" for wrong in outcomes.values())
            lines.append(f"{name:<10} {door:<8} {cells}".rstrip())
            lines += [
                f"    {check}: {wrong[name, door]}"
                for check, wrong in outcomes.items()
                if (name, door) in wrong
            ]
    return "\n".join(lines)


def run(here: Site, route: str, checks: Sequence[str]) -> dict[str, Wrong]:
    """Run each check in sequence, with one run of each client."""
    outcomes = {}
    here.rules(**ROUTES[route])
    here.hub.start()
    try:
        with here.clients(DOORS, route) as clients:
            for check in checks:
                print(f"clients: {route}, {check}", file=sys.stderr, flush=True)
                outcomes[check] = CHECKS[check](here, clients, route)
    finally:
        here.hub.stop()
    return outcomes


def programs_of(wanted: Sequence[str]) -> dict[str, Sequence[str | Path]]:
    """Return the commands of the chosen programs; print and skip those that the machine cannot build."""
    commands = {}
    for ecosystem in chosen(wanted):
        if ecosystem.missing:
            print(
                f"clients: {ecosystem.name} is left out: there is no {', '.join(ecosystem.missing)}",
                flush=True,
            )
        else:
            commands[ecosystem.name] = ensure_built(ecosystem)
    return commands


def chosen(names: Sequence[str]) -> list[Ecosystem]:
    return [ecosystem for ecosystem in ECOSYSTEMS if not names or ecosystem.name in names]


def main() -> int:
    """Run the command; exit status 1 if a client differs, 2 if a program cannot be built."""
    parser = argparse.ArgumentParser(prog="scripts/clients", description=__doc__)
    parser.add_argument("--client", nargs="+", choices=[each.name for each in ECOSYSTEMS], default=[])
    parser.add_argument("--route", nargs="+", choices=[*ROUTES], default=[*ROUTES])
    parser.add_argument("--check", nargs="+", choices=[*CHECKS], default=[*CHECKS])
    options = parser.parse_args()
    try:
        commands, programs = programs_of(options.client), ensure_control_plane()
    except BuildError as error:
        print(error, file=sys.stderr)
        return 2
    folder = Path(tempfile.mkdtemp(prefix="clients-"))
    print(f"logs: {folder}", file=sys.stderr, flush=True)
    has_difference = False
    with site(programs, commands, folder) as here:
        for route in options.route:
            outcomes = run(here, route, options.check)
            print(table(route, [*commands], outcomes), flush=True)
            has_difference |= any(differs(wrong, *who) for wrong in outcomes.values() for who in wrong)
    return int(has_difference)


if __name__ == "__main__":
    sys.exit(main())
