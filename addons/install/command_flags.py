"""The flags of the subcommands that need no running hub."""

from __future__ import annotations

import argparse
from pathlib import Path

from addons.install import cluster_commands
from addons.install.install_spec import KUBELET_KUBECONFIG
from addons.install.services.system_services import KUBELET_UNIT


def add_flags(name: str, parser: argparse.ArgumentParser) -> None:
    """Add the flags of a subcommand."""
    if name == "manifests":
        parser.add_argument(
            "name", nargs="?", default="", help="One manifest, such as hub-rbac. Default: all."
        )
    elif name == "fleet":
        cluster_commands.add_flags(parser)
    else:
        _add_node_flags(name, parser)
        if name == "upgrade":
            _add_upgrade_flags(parser)


def _add_node_flags(name: str, parser: argparse.ArgumentParser) -> None:
    if name in ("doctor", "install"):
        parser.epilog = (
            "Pass flags of the hub after --, as in `edgehub install -- --pod-address 169.254.2.1`."
        )
        parser.add_argument(
            "--kubeconfig", type=Path, help="The node's identity in the cloud. Default: kubelet's."
        )
        parser.add_argument(
            "--node", default="", help="Name of this node. Default: the name in its certificate."
        )
        parser.add_argument(
            "--kubelet-kubeconfig",
            type=Path,
            default=KUBELET_KUBECONFIG,
            help=f"The kubeconfig of kubelet. Default: {KUBELET_KUBECONFIG}.",
        )
    if name == "install":
        parser.add_argument(
            "--kubelet-service",
            default=KUBELET_UNIT,
            metavar="UNIT",
            help=f"kubelet's systemd unit, which is restarted. Default: {KUBELET_UNIT}.",
        )
        parser.add_argument(
            "--proxy-kubeconfig",
            type=Path,
            help="The kubeconfig of a kube-proxy that does not run as a pod. Default: the first of its usual paths.",
        )
        parser.add_argument("--pool", default="", help="Node pool of this node. Default: the node's label.")
        how = parser.add_mutually_exclusive_group()
        how.add_argument(
            "--systemd", action="store_true", help="Run the hub as a systemd unit (the default)."
        )
        how.add_argument(
            "--static-pod", metavar="IMAGE", default="", help="Run the hub as a static pod with this image."
        )
        parser.add_argument(
            "--dry-run", action="store_true", help="Print each file that would change as a diff."
        )
        _add_bootstrap_flags(parser)
    if name in ("install", "upgrade"):
        parser.add_argument(
            "--timeout", type=float, default=60.0, help="Seconds until the node must be Ready. Default: 60."
        )
        parser.add_argument(
            "--healthy",
            type=float,
            default=30.0,
            help="Seconds for which a new hub must stay ready; otherwise the previous one is restored. Default: 30.",
        )
    _add_program_flags(name, parser)


def _add_program_flags(name: str, parser: argparse.ArgumentParser) -> None:
    if name == "uninstall":
        parser.add_argument(
            "--restart-pods",
            action="store_true",
            help="Restart the containers that use the hub's address, which would otherwise lose the API server.",
        )
    else:
        parser.add_argument(
            "--program",
            default="",
            help="Program that the unit starts. Default: this one; with --root, the one installed there.",
        )
    parser.add_argument(
        "--systemctl",
        default=None,
        metavar="COMMAND",
        help="Command to call instead of systemctl. With --root and without this flag, no service is restarted.",
    )
    parser.add_argument("--root", type=Path, default=Path("/"), help="Root folder of the node. Default: /.")


def _add_upgrade_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--static-pod", metavar="IMAGE", default="", help="The new image of a hub that runs as a static pod."
    )
    parser.add_argument(
        "--settle",
        action="store_true",
        help="Only restore the previous hub after a killed command. The node does this by itself.",
    )


def _add_bootstrap_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("a node without an identity, which the hub requests from the cluster")
    group.add_argument("--server", default="", metavar="URL", help="The kube-apiserver, https://host:port.")
    group.add_argument("--token", default="", help="A bootstrap token, as created by `kubeadm token create`.")
    group.add_argument(
        "--ca-hash",
        action="append",
        default=[],
        metavar="sha256:…",
        help="Hash of the cluster's CA, as `kubeadm token create --print-join-command` prints it.",
    )
    group.add_argument(
        "--bootstrap-kubeconfig",
        type=Path,
        help="A kubeconfig with a bootstrap token, instead of these three.",
    )
