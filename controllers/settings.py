"""The manager's command line, parsed into `Settings`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from kube.option import FlagParser

WEBHOOK_CONTROLLER = "configbindingwebhook"
"""The controller that `--webhook-port 0` takes away."""
DESCRIPTION = (
    "The cloud-side controllers of Edgehub. `manager render --help` tells of the preview of bindings."
)
UPDATE_TRIGGER = "openyurt.io/updateTrigger"
"""The trigger annotation of older releases of OpenYurt; newer ones call it openyurt.io/update-trigger."""


TRUE = frozenset({"1", "t", "true"})
FALSE = frozenset({"0", "f", "false"})
"""What Go's flags take for a boolean, in any case."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens: on one address or, without a `host`, on all of them, IPv4 and IPv6. Port 0: nowhere."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Settings:
    """The parsed command line. Without a `kubeconfig` the manager looks where controller-runtime looks."""

    kubeconfig: Path | None = None
    namespace: str = "kube-system"
    controllers: frozenset[str] = frozenset()
    probes: Address = Address("", 10258)
    """Of `/healthz` and `/readyz`."""
    metrics: Address = Address("", 10258)
    webhook: Address = Address("", 9443)
    webhook_client_ca: Path | None = None
    """Whose certificates the webhook's clients must have; None where anybody may ask."""
    leader_elect: bool = True
    trigger_annotation: str = UPDATE_TRIGGER
    default_toleration: int = 300
    """Seconds for which kube-apiserver has a pod without tolerations of its own tolerate a node that is away."""
    verbose: bool = False


def parse_settings(arguments: Sequence[str], controllers: Sequence[str]) -> Settings:
    """Parse the command line; a wrong option ends the process with a message. `controllers` are the known names."""
    parser = make_parser(controllers)
    given = parser.parse_args(arguments)
    try:
        chosen = parse_controllers(given.controllers, controllers)
    except ValueError as error:
        parser.error(f"--controllers: {error}")
    if not given.webhook_port:
        chosen -= {WEBHOOK_CONTROLLER}
    admin = Address(given.listen, given.admin_port)
    return Settings(
        kubeconfig=given.kubeconfig,
        namespace=given.namespace,
        controllers=chosen,
        probes=given.health_probe_bind_address or admin,
        metrics=given.metrics_bind_address or admin,
        webhook=Address(given.listen, given.webhook_port),
        webhook_client_ca=given.webhook_client_ca,
        leader_elect=given.leader_elect,
        trigger_annotation=given.trigger_annotation,
        default_toleration=given.default_toleration,
        verbose=given.verbose,
    )


def make_parser(controllers: Sequence[str]) -> argparse.ArgumentParser:
    """The flags of the manager. `controllers` are the known names."""
    defaults = Settings()
    parser = FlagParser(prog="edgehub-manager", description=DESCRIPTION)
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="default: $KUBECONFIG, else the pod's service account, else ~/.kube/config",
    )
    parser.add_argument(
        "--namespace",
        default=defaults.namespace,
        help="where the Lease and the leader-hub ConfigMaps are kept (%(default)s)",
    )
    parser.add_argument(
        "--controllers",
        default="*",
        metavar="LIST",
        help=f"which run, separated by commas; * is all, -name takes one away: --controllers=*,-{controllers[-1]}. "
        f"Known: {', '.join(controllers)}",
    )
    _add_addresses(parser, defaults)
    parser.add_argument(
        "--leader-elect",
        type=parse_boolean,
        nargs="?",
        const=True,
        default=defaults.leader_elect,
        metavar="BOOL",
        help="write only while holding the Lease; false is for a single manager (true)",
    )
    parser.add_argument(
        "--no-leader-elect",
        dest="leader_elect",
        action="store_false",
        help="the same as --leader-elect=false",
    )
    parser.add_argument(
        "--trigger-annotation",
        default=defaults.trigger_annotation,
        metavar="NAME",
        help="annotation that triggers hubs on Endpoints and EndpointSlices (%(default)s)",
    )
    parser.add_argument(
        "--default-toleration",
        type=int,
        default=defaults.default_toleration,
        metavar="SECONDS",
        help="kube-apiserver's --default-unreachable-toleration-seconds (%(default)s)",
    )
    parser.add_argument("--verbose", action="store_true", help="log more")
    parser.add_argument("--version", action="version", version=f"edgehub-manager {_version()}")
    return parser


def _add_addresses(parser: argparse.ArgumentParser, defaults: Settings) -> None:
    parser.add_argument(
        "--listen", default="", metavar="ADDRESS", help="address of all ports (all addresses, IPv4 and IPv6)"
    )
    parser.add_argument(
        "--admin-port",
        type=int,
        default=defaults.probes.port,
        help="port of /healthz, /readyz and /metrics, 0 for none (%(default)s)",
    )
    parser.add_argument(
        "--metrics-bind-address",
        type=parse_address,
        metavar="[HOST]:PORT",
        help="another place for /metrics; 0 for none",
    )
    parser.add_argument(
        "--health-probe-bind-address",
        type=parse_address,
        metavar="[HOST]:PORT",
        help="another place for /healthz and /readyz; 0 for none",
    )
    parser.add_argument(
        "--webhook-port",
        type=int,
        default=defaults.webhook.port,
        help=f"port of the webhook for bindings, 0 for none and no {WEBHOOK_CONTROLLER} (%(default)s)",
    )
    parser.add_argument(
        "--webhook-client-ca",
        type=Path,
        metavar="FILE",
        help="let nobody ask the webhook but clients with a certificate of this CA, read at each start",
    )


def parse_boolean(text: str) -> bool:
    """A boolean as Go's flags take it; ValueError for another word."""
    word = text.lower()
    if word not in TRUE | FALSE:
        raise ValueError(text)
    return word in TRUE


def parse_address(text: str) -> Address:
    """An address as controller-runtime's flags take it: `:8080`, `127.0.0.1:8080`, `[::1]:8080`, or `0` for none."""
    host, _, port = text.rpartition(":")
    return Address(host.removeprefix("[").removesuffix("]"), int(port))


def parse_controllers(text: str, known: Sequence[str]) -> frozenset[str]:
    """The controllers that a value of `--controllers` selects; ValueError names an unknown one."""
    chosen: set[str] = set()
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    if entries and all(entry.startswith("-") for entry in entries):
        chosen.update(known)
    for entry in entries:
        name = entry.removeprefix("-")
        if name != "*" and name not in known:
            raise ValueError(f"there is no controller {name!r}; known are {', '.join(known)}")
        names = set(known) if name == "*" else {name}
        chosen = chosen - names if entry.startswith("-") else chosen | names
    return frozenset(chosen)


def _version() -> str:
    """Of this program, as it is installed."""
    try:
        return metadata.version("kube-edgehub")
    except metadata.PackageNotFoundError:
        return "unknown"
