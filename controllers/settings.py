"""The manager's options, each declared once, as a field of one frozen value."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from kube.option import VERSION, File, FlagParser, Names, add_flags, option, options_of, read

WEBHOOK_CONTROLLER = "configbindingwebhook"
"""The controller that `--webhook-port 0` disables."""
NODES_CONTROLLER = "nodes"
"""The controller that needs `--hub-image`."""
UPDATE_TRIGGER = "openyurt.io/updateTrigger"
"""The trigger annotation of older releases of OpenYurt; newer ones call it openyurt.io/update-trigger."""


@dataclass(frozen=True, slots=True)
class Address:
    """The listening address of a server: one address or, without a `host`, all of them, IPv4 and IPv6. Port 0 disables
    it."""

    host: str
    port: int


def _address(name: str, text: str) -> Address | None:
    """Parse an address in the form of controller-runtime's flags: `:8080`, `127.0.0.1:8080`, `[::1]:8080`, or `0` for
    none."""
    host, _, port = text.rpartition(":")
    if text and not port.isdecimal():
        raise ValueError(f"{name} {text!r} is not of the form [HOST]:PORT")
    return Address(host.removeprefix("[").removesuffix("]"), int(port)) if text else None


ListenAddress = Annotated[Address | None, _address]


@dataclass(frozen=True, slots=True)
class Settings:
    """The operator's settings. The help texts document each field."""

    kubeconfig: File = option(
        "",
        "Kubeconfig of the cluster ([credentials](manager.md#credentials)).",
        shown="`$KUBECONFIG`, else the pod's service account, else `~/.kube/config`",
        begins="Basics",
    )
    namespace: str = option(
        "kube-system",
        "Namespace of the Lease and the leader-hub ConfigMaps.",
    )
    controllers: Names = option(
        "*", "Controllers to run, separated by commas: `*` is all, `-name` excludes one, as in `*,-nodepool`."
    )
    leader_elect: bool = option(True, "Write only while holding the Lease; false for a single manager.")
    trigger_annotation: str = option(
        UPDATE_TRIGGER,
        "Annotation that triggers hubs; in newer OpenYurt `openyurt.io/update-trigger`.",
    )
    default_toleration: int = option(
        300,
        "kube-apiserver's --default-unreachable-toleration-seconds ([autonomy](controllers.md#how-autonomy-works)).",
    )
    hub_image: str = option(
        "",
        "Image of hubs for [labelled nodes](fleet.md#nodes-that-join-by-a-label). Empty: none.",
    )
    edge_worker_label: str = option(
        "openyurt.io/is-edge-worker", "Label with the value `true` of Nodes that get a hub."
    )
    verbose: bool = option(False, "Log more.")
    listen: str = option("", "Address of all ports.", shown="all addresses, IPv4 and IPv6", begins="Ports")
    admin_port: int = option(10258, "Port of /healthz, /readyz and /metrics. 0: off.")
    metrics_bind_address: ListenAddress = option("", "Another address of /metrics, such as `:8080`. 0: none.")
    health_probe_bind_address: ListenAddress = option(
        "", "Another address of /healthz and /readyz, such as `:8081`. 0: none."
    )
    webhook_port: int = option(
        9443, "Port of the webhook for [bindings](controllers.md#the-webhook). 0: off, with its controller."
    )
    webhook_client_ca: File = option(
        "", "CA of the clients that may call the webhook. Without it every client may."
    )

    @property
    def probes(self) -> Address:
        """The address of /healthz and /readyz."""
        return self.health_probe_bind_address or Address(self.listen, self.admin_port)

    @property
    def metrics(self) -> Address:
        return self.metrics_bind_address or Address(self.listen, self.admin_port)

    @property
    def webhook(self) -> Address:
        return Address(self.listen, self.webhook_port)


OPTIONS = options_of(Settings)


def parse_settings(arguments: Sequence[str], controllers: Sequence[str]) -> Settings:
    """Parse the command line; a wrong option ends the process with a message. `controllers` are the known names."""
    parser = make_parser(controllers)
    given = vars(parser.parse_args(arguments))
    try:
        settings = read(Settings, given, "--")
        chosen = parse_controllers(given.get("controllers", "*"), controllers)
    except ValueError as error:
        parser.error(str(error))
    if not settings.webhook_port:
        chosen -= {WEBHOOK_CONTROLLER}
    if not settings.hub_image:
        chosen -= {NODES_CONTROLLER}
    return replace(settings, controllers=chosen)


def make_parser(controllers: Sequence[str]) -> argparse.ArgumentParser:
    """Build the parser of the manager's flags. `controllers` are the known names."""
    parser = FlagParser(
        prog="edgehub-manager",
        description="The cloud-side controllers of Edgehub. `manager render --help`: a preview of bindings.",
        epilog=f"Controllers: {', '.join(controllers)}.",
    )
    add_flags(parser, OPTIONS)
    parser.add_argument("--version", action="version", version=f"edgehub-manager {VERSION}")
    return parser


def parse_controllers(text: str, known: Sequence[str]) -> frozenset[str]:
    """Return the controllers that a value of `--controllers` selects; ValueError for an unknown name."""
    chosen: set[str] = set()
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    if entries and all(entry.startswith("-") for entry in entries):
        chosen.update(known)
    for entry in entries:
        name = entry.removeprefix("-")
        if name != "*" and name not in known:
            raise ValueError(f"--controllers: there is no controller {name!r}; known are {', '.join(known)}")
        names = set(known) if name == "*" else {name}
        chosen = chosen - names if entry.startswith("-") else chosen | names
    return frozenset(chosen)
