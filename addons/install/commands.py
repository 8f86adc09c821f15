"""The subcommands of `edgehub` that need no running hub: `doctor`, `install`, `fleet` and others."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from addons.install import cluster_commands
from addons.install.changes import below, locked
from addons.install.checks.findings import Severity, has_failed
from addons.install.checks.node_checks import Program, check_distribution, check_program
from addons.install.cloud import authority_of, check_token
from addons.install.command_flags import add_flags
from addons.install.doctor import examine
from addons.install.install_spec import (
    BOOTSTRAP_KUBECONFIG,
    KUBELET_KUBECONFIG,
    LEDGER,
    OWN_KUBECONFIG,
    PROXY_KUBECONFIGS,
    InstallSpec,
    node_of,
    parse_hub_flags,
    program_of,
)
from addons.install.installation import Installation, JoinError
from addons.install.kubeconfigs import bootstrap_kubeconfig, moved
from addons.install.services.system_services import Services
from kube.option import FlagParser

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals from a user, from a service manager, and from a terminal whose connection was lost."""
INTERRUPTED_ADVICE = {"uninstall": "interrupted: `edgehub uninstall` again to finish"}
"""Advice after an interrupted command that is not undone."""


LOCKED_COMMANDS = ("install", "upgrade", "uninstall")
"""Commands that change the node; they exclude each other by a lock."""


def run(arguments: Sequence[str]) -> int:
    """Run one subcommand. Return the exit status, 1 if it failed. Invalid flags exit the process with status 2."""
    given, hub_flags = list(arguments), []
    if "--" in given:
        at = given.index("--")
        given, hub_flags = given[:at], given[at + 1 :]
    parser = make_parser()
    options, unknown = parser.parse_known_args(given)
    if unknown:
        options.own.error(f"unrecognized arguments: {' '.join(unknown)}; flags of the hub follow --")
    options.hub_flags = tuple(hub_flags)
    _make_absolute(options)
    do, _ = COMMANDS[options.command]
    with _endings():
        try:
            with (
                locked(options.root, LEDGER)
                if options.command in LOCKED_COMMANDS
                else contextlib.nullcontext()
            ):
                return do(options)
        except (JoinError, ValueError) as error:
            why = str(error)
        except OSError as error:
            why = f"{error.filename}: {error.strerror}"
        except KeyboardInterrupt:
            why = INTERRUPTED_ADVICE.get(options.command, "interrupted")
    _print_line(f"edgehub {options.command}: {why}", sys.stderr)
    return 1


@contextlib.contextmanager
def _endings() -> Iterator[None]:
    """Raise KeyboardInterrupt at the first signal that would end this program, and ignore later ones, so that the undo
    completes.

    Signals ignored by `nohup` or a shell stay ignored.
    """
    previous = {ending: signal.getsignal(ending) for ending in ENDINGS}
    taken = [number for number, handler in previous.items() if handler is not signal.SIG_IGN]

    def interrupt(_number: int, _frame: object) -> None:
        for number in taken:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    for signal_ in taken:
        signal.signal(signal_, interrupt)
    try:
        yield
    finally:
        for signal_ in taken:
            signal.signal(signal_, previous[signal_])


def _print_line(text: object, stream: TextIO | None = None) -> None:
    """Print a line. A closed terminal, or a pipe without a reader, must not stop an undo."""
    with contextlib.suppress(OSError):
        print(text, file=stream, flush=True)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all subcommands."""
    parser = FlagParser(prog="edgehub", description="A node and its hub.")
    commands = parser.add_subparsers(metavar="COMMAND", dest="command", required=True)
    for name, (_, hint) in COMMANDS.items():
        made = commands.add_parser(name, help=hint, description=f"{hint.capitalize()}.")
        made.set_defaults(own=made, static_pod="")
        add_flags(name, made)
    return parser


def _make_absolute(options: argparse.Namespace) -> None:
    """Make paths from the command line absolute: units, and files below another root, have no working directory."""
    for name, value in vars(options).items():
        if isinstance(value, Path):
            setattr(options, name, value.absolute())
    if "/" in getattr(options, "program", ""):
        options.program = str(Path(options.program).absolute())


def _doctor(options: argparse.Namespace) -> int:
    installation = _installation(options)
    installed = installation.installed
    if installed is not None:
        # Settings of the installed hub, overridden by the operator's flags.
        options.hub_flags = (*installed.arguments, *options.hub_flags)
        options.node = options.node or installed.node
        options.program, options.static_pod = installed.program, installed.image
    options.program = options.program or program_of(options.root, acts=installation.acts)
    program = Program(installation.unit_root, options.program, is_needed=installed is not None)
    return 0 if _examine(options, program, says_all=True) else 1


def _install(options: argparse.Namespace) -> int:
    installation = _installation(options)
    _refuse_distribution(options)
    options.program = options.program or program_of(options.root, acts=installation.acts)
    previous = installation.installed
    bootstrap = _bootstrap_text(options)
    bootstraps = bool(bootstrap or (previous and not previous.identity and not options.kubeconfig))
    identity = options.kubeconfig or (
        Path(previous.identity) if previous and previous.identity else options.kubelet_kubeconfig
    )
    flags = (*(("--pool", options.pool) if options.pool else ()), *options.hub_flags)
    proxies = (options.proxy_kubeconfig,) if options.proxy_kubeconfig else PROXY_KUBECONFIGS
    spec = InstallSpec(
        node=_node_to_install(options, previous, identity, bootstraps),
        method="static-pod" if options.static_pod else "systemd",
        program=options.program,
        image=options.static_pod,
        flags=flags,
        identity="" if bootstraps else str(identity),
        kubelet=str(options.kubelet_kubeconfig),
        proxies=tuple(str(path) for path in proxies if below(options.root, path).exists()),
        bootstrap=bootstrap,
        service=options.kubelet_service,
    )
    if options.dry_run:
        installation.show(spec)
        return 0
    options.node, options.hub_flags = spec.node, spec.arguments
    program = Program(installation.unit_root, options.program)
    if not _examine(options, program, bootstrap, says_all=False):
        _print_line("nothing was changed; run `edgehub doctor` for details", sys.stderr)
        return 1
    installation.install(spec, options.timeout, options.healthy)
    _print_line(
        f"{spec.node} is behind its hub at {spec.hub.plain_url}"
        if installation.acts
        else "the files are written"
    )
    return 0


def _uninstall(options: argparse.Namespace) -> int:
    installation = _installation(options)
    was_installed = installation.installed is not None
    installation.uninstall(restarts_pods=options.restart_pods)
    if was_installed:
        _print_line("every file is as it was; the state folder is kept, and may be deleted")
    return 0


def _upgrade(options: argparse.Namespace) -> int:
    installation = _installation(options)
    if options.settle:
        installation.settle(options.timeout)
        return 0
    program = options.program or program_of(options.root, acts=installation.acts)
    installed = installation.installed
    if installed is not None and installed.method == "systemd":
        # In a Job the node's root is mounted elsewhere, and the unit starts a program of that root.
        is_there = below(options.root, Path(program).absolute()).exists()
        finding = check_program(Program(options.root if is_there else installation.unit_root, program))
        if finding.severity is Severity.FAILED:
            raise ValueError(f"{finding.text}; nothing was changed")
    installation.upgrade(program, options.static_pod, options.timeout, options.healthy)
    _print_line("the hub runs with this program")
    return 0


def _refuse_distribution(options: argparse.Namespace) -> None:
    """Raise ValueError, with the remedy, if kubeadm's files are missing because of another distribution."""
    for finding in check_distribution(options.root, options.kubelet_kubeconfig, KUBELET_KUBECONFIG):
        if finding.severity is not Severity.OK:
            raise ValueError(finding.text)


def _manifests(options: argparse.Namespace) -> int:
    name = options.name
    _print_line(
        cluster_commands.manifest(name).rstrip("\n") if name else "\n".join(cluster_commands.listed())
    )
    return 0


def _fleet(options: argparse.Namespace) -> int:
    _print_line(
        cluster_commands.fleet_text(options.kubeconfig, options.context, as_json=options.json).rstrip("\n")
    )
    return 0


def _installation(options: argparse.Namespace) -> Installation:
    systemctl = options.systemctl
    if systemctl is None:
        systemctl = "systemctl" if options.root == Path("/") else ""
    return Installation(options.root, Services(systemctl), _print_line)


def _bootstrap_text(options: argparse.Namespace) -> str:
    """Return the kubeconfig with a bootstrap token from the flags; "" if they request none."""
    parts = options.server, options.token, options.ca_hash
    if options.kubeconfig and (any(parts) or options.bootstrap_kubeconfig):
        raise ValueError("give either the node's identity (--kubeconfig) or a bootstrap token, not both")
    if options.bootstrap_kubeconfig:
        if any(parts):
            raise ValueError("--bootstrap-kubeconfig takes the place of --server, --token and --ca-hash")
        given: Path = options.bootstrap_kubeconfig.absolute()
        return moved(given.read_text(), given.parent, BOOTSTRAP_KUBECONFIG.parent)
    if not any(parts):
        return ""
    if not all(parts) or not options.server.startswith("https://"):
        raise ValueError("a bootstrap needs all of --server https://…, --token and --ca-hash")
    check_token(options.token)
    authority = asyncio.run(authority_of(options.server, options.ca_hash, options.token))
    return bootstrap_kubeconfig(options.server, authority, options.token)


def _examine(options: argparse.Namespace, program: Program, bootstrap: str = "", *, says_all: bool) -> bool:
    """Run all checks, and print all findings or only the problems. Return whether the hub can run.

    `program` is what the unit starts; unused for a static pod. `bootstrap` as from `_bootstrap_text`.
    """
    own = (path for path in (OWN_KUBECONFIG, BOOTSTRAP_KUBECONFIG) if below(options.root, path).exists())
    kubeconfig = options.kubeconfig or (
        BOOTSTRAP_KUBECONFIG if bootstrap else next(own, options.kubelet_kubeconfig)
    )
    findings = []
    for finding in examine(
        options.root,
        kubeconfig,
        options.node or _node(options, kubeconfig),
        parse_hub_flags(options.hub_flags),
        bootstrap,
        program=None if options.static_pod else program,
        kubelet=options.kubelet_kubeconfig,
    ):
        if says_all or finding.severity is not Severity.OK:
            _print_line(finding)
        findings.append(finding)
    return not has_failed(findings)


def _node_to_install(
    options: argparse.Namespace, previous: InstallSpec | None, identity: Path, bootstraps: bool
) -> str:
    if previous is not None and not options.node:
        return previous.node
    return (options.node or os.uname().nodename.lower()) if bootstraps else _node(options, identity)


def _node(options: argparse.Namespace, kubeconfig: Path) -> str:
    """Return the node's name: from the flag, the certificate, or the host."""
    return str(options.node) or node_of(kubeconfig, options.root) or os.uname().nodename.lower()


COMMANDS: Mapping[str, tuple[Callable[[argparse.Namespace], int], str]] = {
    "doctor": (_doctor, "check this node for problems with its hub, and print remedies"),
    "install": (
        _install,
        "put this node behind its hub: unit or static pod, own kubeconfig, kubelet and kube-proxy",
    ),
    "uninstall": (_uninstall, "undo that, byte for byte"),
    "upgrade": (_upgrade, "run the hub with another program; roll back if that fails"),
    "manifests": (_manifests, "print the manifests for the cloud: all names, or one of them"),
    "fleet": (_fleet, "list the cluster's hubs, those first that need attention"),
}
"""The subcommands with their texts for `--help`."""
