"""The specification of an installation, and the files that follow from it. Pure, except that it reads kubeconfigs."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Literal

from cryptography import x509
from cryptography.x509.oid import NameOID

from addons.certificates.tls_port_certificate import LOCAL_AUTHORITY
from addons.install.changes import FileChange, Ledger, below
from addons.install.kubeconfigs import (
    folders_of,
    has_verifiable_certificate,
    moved,
    pointed_at,
    server_of,
    without_credentials,
)
from addons.install.services.system_services import KUBELET_PKI, KUBELET_UNIT, socket_unit, static_pod, unit
from addons.link.servers import parse_server
from addons.settings import OPTIONS, Settings
from addons.startup.preflight import own_listener
from kube.http.kubeconfig import load_kubeconfig
from kube.json_type import Json
from kube.option import add_flags, as_flags, read
from kube.peers import NODE_PREFIX, is_node_name

KUBELET_KUBECONFIG = Path("/etc/kubernetes/kubelet.conf")
"""Path of kubelet's kubeconfig from kubeadm."""
KUBELET_BOOTSTRAP = Path("/etc/kubernetes/bootstrap-kubelet.conf")
"""Path in kubeadm's unit; kubelet reads it if kubelet.conf has no valid certificate."""
PROXY_KUBECONFIGS = (
    Path("/etc/kubernetes/kube-proxy.conf"),
    Path("/var/lib/kube-proxy/kubeconfig.conf"),
    Path("/var/lib/kube-proxy/kubeconfig"),
)
"""Paths of the kubeconfig of a kube-proxy that does not run as a pod; kubeadm's kube-proxy reads a ConfigMap."""
OWN_KUBECONFIG = Path("/etc/kubernetes/edgehub.conf")
BOOTSTRAP_KUBECONFIG = Path("/etc/kubernetes/edgehub-bootstrap.conf")
"""The hub's kubeconfig if the hub requests its own identity."""
UNIT_FILE = Path("/etc/systemd/system/edgehub.service")
INSTALLED = {"--pod-address": "auto", "--tls-signer": "cluster"}
"""Default flags of an installed hub: pods reach it and trust its certificate without further steps."""
SOCKET_FILE = Path("/etc/systemd/system/edgehub.socket")
STATIC_POD = Path("/etc/kubernetes/manifests/edgehub.yaml")
LEDGER = Path("/var/lib/edgehub-install")
PROGRAMS = (Path("/usr/local/bin/edgehub"), Path("/opt/edgehub/bin/edgehub"), Path("/usr/bin/edgehub"))
"""Paths of the command on a node; the first is that of docs/install.md."""
Method = Literal["systemd", "static-pod"]


FILES = (
    *("tls_cert", "tls_key", "peer_cert", "peer_key"),
    *("kubelet_client_certificate", "kubelet_client_key", "kubelet_certificate_authority"),
)
"""The hub's options that name a file."""
HUB_FLAGS = frozenset(
    {
        *("listen", "port", "tls_port", "admin_port", "pod_address", "state_dir", "namespace", "configmap"),
        *("filter_module", "disabled_filters", "tls_signer", *FILES),
    }
)
"""The hub's options that the installation reads. The hub itself validates all others."""


@dataclass(frozen=True, slots=True)
class InstallSpec:
    """The specification of an installation. All paths are the node's, without the root."""

    node: str
    method: Method
    program: str
    """Command that the unit starts."""
    image: str
    """Image of the static pod."""
    flags: tuple[str, ...]
    """Flags of the hub, as typed."""
    identity: str
    """The kubeconfig from which the hub's own is copied; "" if the hub requests an identity with a bootstrap token."""
    kubelet: str
    proxies: tuple[str, ...]
    bootstrap: str = field(default="", repr=False)
    """Text of the kubeconfig with the token; "" if its file exists already. Not stored in the ledger."""
    service: str = KUBELET_UNIT
    """The service that runs kubelet."""

    @property
    def hub(self) -> Settings:
        return parse_hub_flags(self.arguments)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The hub's flags, with defaults, except those for its identity."""
        given = {flag.partition("=")[0] for flag in self.flags}
        added = (
            argument for flag, value in INSTALLED.items() if flag not in given for argument in (flag, value)
        )
        return (*added, *self.flags)

    @property
    def needs_cluster_certificate(self) -> bool:
        """Whether pods must be able to trust the TLS port by a certificate that the cluster signs."""
        return bool(self.hub.tls_port) and self.hub.tls_signer == "cluster" and not self.hub.tls_cert

    @property
    def kubeconfig(self) -> Path:
        """Path of the hub's own kubeconfig."""
        return OWN_KUBECONFIG if self.identity else BOOTSTRAP_KUBECONFIG

    @property
    def hub_files(self) -> frozenset[Path]:
        """The files that start the hub: its kubeconfig, its unit or static pod, and its socket unit."""
        return frozenset({OWN_KUBECONFIG, BOOTSTRAP_KUBECONFIG, self.hub_file, SOCKET_FILE})

    @property
    def hub_file(self) -> Path:
        """The unit or static pod that starts the hub."""
        return UNIT_FILE if self.method == "systemd" else STATIC_POD

    def split(self, changes: Iterable[FileChange]) -> tuple[list[FileChange], list[FileChange]]:
        """Separate the changes for the hub from those for its clients."""
        own, clients = list[FileChange](), list[FileChange]()
        for change in changes:
            (own if change.path in self.hub_files else clients).append(change)
        return own, clients

    @property
    def pod(self) -> str:
        """kubelet's name for the static pod."""
        return f"kube-system/edgehub-{self.node}"

    @property
    def clients(self) -> tuple[Path, ...]:
        """The kubeconfigs to point at the hub, kubelet's first."""
        return tuple(map(Path, (self.kubelet, *self.proxies)))

    def hub_changes(self, ledger: Ledger) -> list[FileChange]:
        """Return the changes for the hub's own kubeconfig, and for the files that start the hub.

        ValueError if the source kubeconfig is missing, or a value is invalid.
        """
        if not is_node_name(self.node):
            raise ValueError(
                f"--node {self.node!r} is not a valid node name: use lower case letters, digits, '-' and '.'"
            )
        hub = self.hub
        for path in (hub.state_dir, *_files(hub)):
            if not path.is_absolute():
                raise ValueError(f"after --: {path}: give the absolute path: the hub runs in another folder")
        if not (hub.port and hub.admin_port):
            raise ValueError(
                "after --: an installed hub needs --port and --admin-port, for kubelet and for its health"
            )
        flag = "--kubeconfig" if self.identity else "--bootstrap-kubeconfig"
        arguments = [flag, str(self.kubeconfig), "--node", self.node, *self.arguments]
        own = self._own_kubeconfig(ledger)
        if self.method == "systemd":
            started = unit([self.program, *arguments], makes_address=hub.pod_address.makes)
            sockets = FileChange(SOCKET_FILE, socket_unit(hub.early_listeners).encode())
            return [*own, sockets, FileChange(self.hub_file, started.encode())]
        admin = hub.listen, hub.admin_port
        text = (own[0].data if own else ledger.present(self.kubeconfig) or b"").decode()
        started = static_pod(
            self.image,
            arguments,
            str(self.kubeconfig),
            admin,
            makes_address=hub.pod_address.makes,
            folders=sorted(self._folders(hub, text)),
            read_at_start=text,
        )
        return [*own, FileChange(self.hub_file, started.encode())]

    def client_changes(self, ledger: Ledger) -> list[FileChange]:
        """Return the changes for the kubeconfigs of kubelet and kube-proxy, and for kubelet's bootstrap kubeconfig.

        kubelet with `--bootstrap-kubeconfig`, as started by kubeadm and k0s, accepts a kubeconfig only if it has a
        client certificate for an https server. So kubelet calls the TLS port with its own certificate if the hub can
        verify it, and renews it through the hub; otherwise it calls the plain port.
        """
        url = self.hub.plain_url
        proxies = [
            FileChange(path, pointed_at(_text(ledger, path), url).encode()) for path in self.clients[1:]
        ]
        kubelet = Path(self.kubelet)
        if not self.identity and ledger.original(kubelet) is None:
            return [*self._changes_of_newcomer(ledger), *proxies]
        text = _text(ledger, kubelet)
        if self._has_tls and has_verifiable_certificate(text, kubelet.parent, ledger.locate):
            pointed = pointed_at(text, self.hub.tls_url, self._authority)
        else:
            pointed = pointed_at(text, url)
        return [FileChange(kubelet, pointed.encode()), *proxies]

    @property
    def _has_tls(self) -> bool:
        """Whether the TLS port's certificate, by the local CA or the operator's, contains the address for this node."""
        hub = self.hub
        return bool(hub.tls_port) and ip_address(hub.listen).is_loopback

    @property
    def _authority(self) -> Path:
        """File of the CA that signs the TLS port's certificate for clients on the loopback address."""
        return self.hub.tls_cert or self.hub.state_dir / LOCAL_AUTHORITY

    def _changes_of_newcomer(self, ledger: Ledger) -> list[FileChange]:
        """Return the changes for a kubelet that never joined: a kubeconfig without credentials, and a bootstrap
        kubeconfig with the token.

        With `--kubeconfig` alone, kubelet gets the node's identity through the plain port. With
        `--bootstrap-kubeconfig`, too, it requests its certificate through the TLS port, and replaces kubelet.conf.
        """
        kubelet = Path(self.kubelet)
        present = ledger.present(kubelet)
        if present is not None and leads_to(self.hub, server_of(present.decode(errors="replace"))):
            return []
        changes = [FileChange(kubelet, without_credentials(self.hub.plain_url).encode(), 0o600)]
        token = self.bootstrap or (ledger.present(self.kubeconfig) or b"").decode()
        if self._has_tls and token:
            text = pointed_at(token, self.hub.tls_url, self._authority)
            changes.append(FileChange(KUBELET_BOOTSTRAP, text.encode(), 0o600))
        return changes

    def to_json(self) -> Json:
        return {name: value for name, value in asdict(self).items() if name != "bootstrap"}

    def _folders(self, hub: Settings, kubeconfig: str) -> set[str]:
        """Return the folders of the files that the hub reads in addition to its kubeconfig, except kubelet's
        certificates.

        `kubeconfig` is the text of the hub's own.
        """
        folders = {str(path.parent) for path in _files(hub)}
        return folders.union(folders_of(kubeconfig, self.kubeconfig.parent)) - {KUBELET_PKI}

    def _own_kubeconfig(self, ledger: Ledger) -> list[FileChange]:
        if not self.identity:
            # Otherwise unchanged: an operator may have put a new token into the file.
            return [FileChange(self.kubeconfig, self.bootstrap.encode(), 0o600)] if self.bootstrap else []
        source = Path(self.identity)
        text = _text(ledger, source)
        if leads_to(self.hub, server_of(text)):
            raise ValueError(
                f"{source} leads to a hub already: name the kubeconfig of the cloud by --kubeconfig"
            )
        own = moved(text, source.parent, OWN_KUBECONFIG.parent)
        return [FileChange(OWN_KUBECONFIG, own.encode(), 0o600)]


def read_spec(spec: Json) -> InstallSpec:
    """Return the specification stored in a ledger."""
    return InstallSpec(**{**spec, "flags": tuple(spec["flags"]), "proxies": tuple(spec["proxies"])})


def leads_to(hub: Settings, server: str) -> bool:
    """Whether a kubeconfig's server is a port of the hub itself, under any name of this machine."""
    try:
        return bool(own_listener(hub, parse_server(server)))
    except ValueError:
        return False  # for example a URL with a query: the hub refuses it with a message


def parse_hub_flags(flags: Sequence[str]) -> Settings:
    """Parse the hub's flags that the installation reads. All other settings have their defaults."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    add_flags(parser, [option for option in OPTIONS if option.name in HUB_FLAGS])
    try:
        known, _ = parser.parse_known_args(list(flags))
        return read(Settings, vars(known), "hub_")
    except (argparse.ArgumentError, ValueError) as error:
        raise ValueError(f"after --: {as_flags(str(error))}") from None


def node_of(kubeconfig: Path, root: Path) -> str:
    """Return the node whose certificate a kubeconfig below a root has; "" if it has none of a node."""
    try:
        pem = load_kubeconfig(kubeconfig, locate=partial(below, root)).user.certificate.read()
        leaf = x509.load_pem_x509_certificates(pem)[0]
    except (OSError, ValueError):
        return ""
    names = [str(attribute.value) for attribute in leaf.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    return next((name.removeprefix(NODE_PREFIX) for name in names if name.startswith(NODE_PREFIX)), "")


def program_of(root: Path, *, acts: bool) -> str:
    """Return the command `edgehub` next to this process's interpreter, where a wheel installs it.

    Below another root whose services are not called, return that root's own command.
    """
    if root != Path("/") and not acts:
        there = (str(path) for path in PROGRAMS if below(root, path).exists())
        return next(there, str(PROGRAMS[0]))
    beside = Path(sys.executable).with_name("edgehub")
    return str(beside) if beside.exists() else shutil.which("edgehub") or "edgehub"


def _files(hub: Settings) -> list[Path]:
    """Return the files that the hub's options name."""
    return [*hub.filter_modules, *filter(None, (getattr(hub, option) for option in FILES))]


def _text(ledger: Ledger, path: Path) -> str:
    original = ledger.original(path)
    if original is None:
        raise ValueError(
            f"{path} is not there: name the kubeconfig of kubelet by --kubelet-kubeconfig, or join the node by "
            "--server, --token and --ca-hash"
        )
    try:
        return original.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: {error}") from None
