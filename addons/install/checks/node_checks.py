"""Checks of the node itself: distribution, certificate, disk, ports, address for pods. Sends no request off the
node.
"""

from __future__ import annotations

import datetime
import errno
import os
import shutil
import socket
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cryptography import x509

from addons.certificates.node_certificate import FILE as NODE_FILE
from addons.certificates.tls_port_certificate import FILE as CLUSTER_FILE
from addons.install.changes import below
from addons.install.checks.findings import Finding, failed, ok, warning
from addons.link.tls import UpstreamTls
from kube.disk.atomic_file import read_file
from kube.http.kubeconfig import Credentials
from kube.option import VERSION

MIN_FREE_DISK = 256 * 1024 * 1024
"""Bytes that should be free for the copies of the node's lists."""
STATE_CERTIFICATES = {
    "serving.crt": "of the TLS port, by the local CA,",
    "cluster.pem": "of the TLS port, by the cluster,",
    "peer.pem": "of the peer port",
}
"""The certificates in the state folder, without the node's own, which has its own check."""
REMEDIES = {
    "kubelet": "join the node again (kubeadm join), or renew the certificate",
    "the hub": "the hub asks for another one with its bootstrap token, which may need a new one; see the hub's log",
}
"""Remedy for an expired certificate, by the program that renews it."""
RENEWAL_OVERDUE = 0.1
"""Fraction of a certificate's lifetime. With less left, its renewal is overdue."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """A Kubernetes distribution: a file that identifies its nodes, and instructions to install the hub there."""

    name: str
    sign: Path
    works: str


RANCHER_REMEDY = (
    "its agent writes kubelet's kubeconfig anew at each start: copy {sign} to "
    "/etc/rancher/{name}/edgehub-kubelet.kubeconfig, name the copy in /etc/rancher/{name}/config.yaml "
    "(kubelet-arg: [kubeconfig=…]), and install with --kubelet-kubeconfig COPY --kubelet-service {name}-agent.service; "
    "the agent itself starts only while its server answers"
)


def _of_rancher(title: str, name: str) -> Distribution:
    sign = Path(f"/var/lib/rancher/{name}/agent/kubelet.kubeconfig")
    return Distribution(title, sign, RANCHER_REMEDY.format(sign=sign, name=name))


DISTRIBUTIONS = (
    _of_rancher("k3s", "k3s"),
    _of_rancher("RKE2", "rke2"),
    Distribution(
        "MicroK8s",
        Path("/var/snap/microk8s/current/credentials/kubelet.config"),
        "install with --kubelet-kubeconfig /var/snap/microk8s/current/credentials/kubelet.config --kubelet-service "
        "snap.microk8s.daemon-kubelite.service on a node that joined with --worker; a refresh of the snap may write "
        "the file anew",
    ),
    Distribution(
        "k0s",
        Path("/var/lib/k0s/kubelet.conf"),
        "install with --kubelet-kubeconfig /var/lib/k0s/kubelet.conf --kubelet-service k0sworker.service on a worker",
    ),
)
TALOS = "ID=talos"
"""Line of /etc/os-release on Talos, which has no systemd for other services and no shell, and manages kubelet's files
itself.
"""
RELEASE = Path("/etc/os-release")


def check_distribution(root: Path, kubelet: Path, default: Path) -> Iterator[Finding]:
    """Identify the node's distribution by its files. Yield nothing for kubeadm's.

    `kubelet` is kubelet's kubeconfig from the options, `default` kubeadm's.
    """
    release = below(root, RELEASE)
    if release.exists() and TALOS in release.read_text(errors="replace").splitlines():
        yield failed(
            "distribution",
            "Talos keeps kubelet's files to itself: run hubs as the chart's DaemonSet (hub.enabled), for pods, and "
            "leave kubelet with the cloud",
        )
        return
    for distribution in DISTRIBUTIONS:
        if not below(root, distribution.sign).exists():
            continue
        if kubelet != default:
            yield ok("distribution", f"{distribution.name}, with kubelet's kubeconfig at {kubelet}")
        elif not below(root, default).exists():
            yield warning("distribution", f"{distribution.name}: {distribution.works} (docs/nodes.md)")


class Program(NamedTuple):
    """The command that the unit starts, and the root below which it is installed."""

    root: Path
    command: str
    is_needed: bool = True
    """Whether a unit starts it now. False for an image into which it may be installed later."""


def check_program(program: Program) -> Finding:
    """Check that a program and its interpreter exist, and that root without capabilities, as which the unit runs, can
    reach both.
    """
    path = Path(program.command)
    if not path.is_absolute():
        return ok("program", f"edgehub {VERSION}")  # found by the service manager's search path
    needed = [path, *_interpreters(below(program.root, path))]
    for file in needed:
        if not below(program.root, file).exists():
            where = f" below {program.root}" if program.root != Path("/") else ""
            return (failed if program.is_needed else warning)(
                "program",
                f"{file} is not there{where}: install the program (docs/install.md), or name it by --program",
            )
    for file in (*needed, path.with_name("python3")):
        real = below(program.root, file)
        for passed in (real, *real.parents) if real.exists() else ():
            status = passed.stat()
            may = 0o100 if status.st_uid == 0 else 0o010 if status.st_gid == 0 else 0o001
            if not status.st_mode & may:
                return warning(
                    "program",
                    f"{passed} is not open to root without capabilities, as which the unit runs {path}: install it "
                    "in a folder of root's, such as /opt/edgehub",
                )
    return ok("program", f"edgehub {VERSION}")


def _interpreters(program: Path) -> list[Path]:
    """Return the absolute interpreter in a script's first line; empty if there is none."""
    try:
        with program.open("rb") as file:
            first = file.readline(512)
    except OSError:
        return []
    command = first.removeprefix(b"#!").split() if first.startswith(b"#!") else []
    return [Path(os.fsdecode(command[0]))] if command and command[0].startswith(b"/") else []


def check_certificate(
    credentials: Credentials, now: datetime.datetime, renewer: str = "kubelet"
) -> Iterator[Finding]:
    """Check that the kubeconfig's identity is usable, and until when.

    `renewer` names the program that renews it.
    """
    try:
        UpstreamTls(credentials).check()
        pem = credentials.user.certificate.read()
        has_token = bool(credentials.user.bearer)
    except (OSError, ValueError) as error:
        yield failed("certificate", f"{error}: is the file where the kubeconfig says, and readable?")
        return
    if not pem:
        command = "the kubeconfig has a token and no client certificate"
        yield (
            ok("certificate", command)
            if has_token
            else failed("certificate", "the kubeconfig has no credentials")
        )
        return
    leaf = x509.load_pem_x509_certificates(pem)[0]
    begins, ends = leaf.not_valid_before_utc, leaf.not_valid_after_utc
    left, life = (ends - now).total_seconds(), (ends - begins).total_seconds()
    name = leaf.subject.rfc4514_string()
    if now < begins:
        yield failed("certificate", f"{name} begins only at {begins}: is the clock of this node right?")
    elif left <= 0:
        yield failed("certificate", f"{name} ended at {ends}: {REMEDIES[renewer]}")
    elif renewer == "kubelet" and credentials.user.certificate.path is None:
        yield warning(
            "certificate",
            f"{name} until {ends:%Y-%m-%d %H:%M} UTC, in the kubeconfig itself, which is never renewed: name "
            "kubelet's file there (client-certificate and client-key: "
            "/var/lib/kubelet/pki/kubelet-client-current.pem)",
        )
    elif left < life * RENEWAL_OVERDUE:
        yield warning("certificate", f"{name} ends at {ends}: {renewer} should have renewed it; see its log")
    else:
        yield ok("certificate", f"{name} until {ends:%Y-%m-%d %H:%M} UTC")


def check_state_certificates(state: Path, now: datetime.datetime) -> Iterator[Finding]:
    """Check the certificates in the state folder, if any, and until when they are valid."""
    for file, what in STATE_CERTIFICATES.items():
        try:
            leaf = x509.load_pem_x509_certificates(read_file(state / "pki" / file))[0]
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            yield warning("certificate", f"{what}: {error}; the hub makes or asks for another one")
            continue
        ends = leaf.not_valid_after_utc
        if ends <= now:
            yield warning(
                "certificate", f"{what} ended at {ends:%Y-%m-%d %H:%M} UTC; see the hub's log for why"
            )
        else:
            yield ok("certificate", f"{what} until {ends:%Y-%m-%d %H:%M} UTC")


def check_asked(state: Path, *, asks_for_identity: bool, asks_for_serving: bool) -> Iterator[Finding]:
    """Check that the cluster has signed the certificates that the hub requests."""
    flags = (
        (asks_for_identity, NODE_FILE, "of this node"),
        (asks_for_serving, CLUSTER_FILE, "of the TLS port, by the cluster"),
    )
    for is_asked, file, what in flags:
        if is_asked and not (state / file).exists():
            yield warning(
                "certificate",
                f"{what}: the hub requested it and has none: approve its CertificateSigningRequest "
                "(`kubectl get csr`), and see the hub's log",
            )


def check_disk(folder: Path) -> Finding:
    """Check that the state folder, or its first existing parent, is writable and has enough free space."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.access(there, os.W_OK):
        return failed("disk", f"{there} cannot be written: the state folder is {folder}")
    free = shutil.disk_usage(there).free
    if free < MIN_FREE_DISK:
        return warning("disk", f"{there} has {free >> 20} MiB free; copies of what the node reads need room")
    return ok("disk", f"{folder}: {free >> 20} MiB free")


def check_ports(
    listen: str, ports: Mapping[str, int], is_running: bool, held: Collection[int] = ()
) -> Iterator[Finding]:
    """Check that the hub's ports are free, or used by the hub itself.

    `ports` are by option; 0 means off. `held` are ports that systemd holds open for the hub, whether it runs or not.
    """
    for option, port in ports.items():
        if not port:
            continue
        error = _cannot_bind(listen, port)
        if error == errno.EADDRINUSE and (is_running or port in held):
            yield ok("ports", f"{listen}:{port} ({option}) is the hub's")
        elif error:
            yield failed(
                "ports", f"{listen}:{port} ({option}): {os.strerror(error)}; choose another one by {option}"
            )
        else:
            yield ok("ports", f"{listen}:{port} ({option}) is free")


def check_address(addresses: tuple[str, ...]) -> Iterator[Finding]:
    """Check that the addresses at which pods reach the hub are this node's."""
    for address in addresses:
        if _cannot_bind(address, 0):
            yield failed(
                "address", f"{address} is no address of this node: `ip addr add {address}/32 dev lo`"
            )
        elif address.startswith("127.") or address == "::1":
            yield warning(
                "address", f"{address}: pods with a network of their own cannot reach it; see --pod-address"
            )
        else:
            yield ok("address", f"{address} is an address of this node")


def _cannot_bind(address: str, port: int) -> int:
    """Try to listen at this address. Return the errno, or 0 on success."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # Like asyncio: closed connections of a previous hub must not block the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
            probe.listen(1)
        except OSError as error:
            return error.errno or errno.EIO
    return 0
