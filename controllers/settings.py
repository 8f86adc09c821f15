"""The manager's command line, parsed into `Settings`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

WEBHOOK_CONTROLLER = "configbindingwebhook"
"""The controller that `--webhook-port 0` takes away."""
DESCRIPTION = (
    "The cloud-side controllers of Edgehub. `manager render --help` tells of the preview of bindings."
)
UPDATE_TRIGGER = "openyurt.io/updateTrigger"
"""The trigger annotation of older releases of OpenYurt; newer ones call it openyurt.io/update-trigger."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The parsed command line. Without a `kubeconfig` the manager uses its pod's service account."""

    kubeconfig: Path | None = None
    namespace: str = "kube-system"
    controllers: frozenset[str] = frozenset()
    listen: str = "0.0.0.0"  # noqa: S104  # kubelet's probes and Prometheus come from other hosts
    admin_port: int = 10258
    webhook_port: int = 9443
    leader_elect: bool = True
    trigger_annotation: str = UPDATE_TRIGGER
    verbose: bool = False


def parse_settings(arguments: Sequence[str], controllers: Sequence[str]) -> Settings:
    """Parse the command line; a wrong option ends the process with a message. `controllers` are the known names."""
    defaults = Settings()
    parser = argparse.ArgumentParser(prog="manager", description=DESCRIPTION)
    parser.add_argument("--kubeconfig", type=Path, metavar="FILE", help="default: the pod's service account")
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
    parser.add_argument("--listen", default=defaults.listen, help="address of both ports (%(default)s)")
    parser.add_argument(
        "--admin-port",
        type=int,
        default=defaults.admin_port,
        help="port of /healthz, /readyz and /metrics, 0 for none (%(default)s)",
    )
    parser.add_argument(
        "--webhook-port",
        type=int,
        default=defaults.webhook_port,
        help=f"port of the webhook for bindings, 0 for none and no {WEBHOOK_CONTROLLER} (%(default)s)",
    )
    parser.add_argument(
        "--no-leader-elect", action="store_true", help="write without a Lease: for a single manager only"
    )
    parser.add_argument(
        "--trigger-annotation",
        default=defaults.trigger_annotation,
        metavar="NAME",
        help="annotation that triggers hubs on Endpoints and EndpointSlices (%(default)s)",
    )
    parser.add_argument("--verbose", action="store_true", help="log more")
    parser.add_argument("--version", action="version", version=f"edgehub-manager {_version()}")
    given = parser.parse_args(arguments)
    try:
        chosen = parse_controllers(given.controllers, controllers)
    except ValueError as error:
        parser.error(f"--controllers: {error}")
    if not given.webhook_port:
        chosen -= {WEBHOOK_CONTROLLER}
    return Settings(
        kubeconfig=given.kubeconfig,
        namespace=given.namespace,
        controllers=chosen,
        listen=given.listen,
        admin_port=given.admin_port,
        webhook_port=given.webhook_port,
        leader_elect=not given.no_leader_elect,
        trigger_annotation=given.trigger_annotation,
        verbose=given.verbose,
    )


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
        return metadata.version("edgehub")
    except metadata.PackageNotFoundError:
        return "unknown"
