"""The hub's options, each declared once, as a field of the frozen value from which the hub reads them."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from addons.filters.inputs import HubAddress, PodAddress, family_of, parse_pod_address
from addons.link.servers import Server, ServerOrder, parse_relays, parse_server
from addons.link.timeouts import PROBE_INTERVAL, PROBE_TIMEOUT, parse_duration
from addons.link.uplinks.uplink import Uplink, parse_uplinks
from addons.telemetry.link_budget import LinkBudget, parse_link_budget
from kube.option import (
    Days,
    File,
    Files,
    Folder,
    HttpUrl,
    IpAddress,
    IpAddresses,
    Kilobytes,
    Names,
    Option,
    Port,
    Seconds,
    SecondsOrNone,
    Users,
    option,
    options_of,
    read,
    split_list,
)
from kube.peers import LeaderHub, is_node_name, parse_leader_hub


def _servers(_name: str, text: str) -> tuple[Server, ...]:
    return tuple(parse_server(entry) for entry in split_list(text))


def _relays(_name: str, text: str) -> tuple[Server, ...]:
    return parse_relays(text)


def _hosts(_name: str, text: str) -> frozenset[str]:
    return frozenset(split_list(text.lower()))


def _kubeconfigs(_name: str, text: str) -> tuple[Path, ...]:
    return tuple(Path(path).expanduser() for path in text.split(os.pathsep) if path)


@dataclass(frozen=True, slots=True)
class Settings:
    """The operator's settings; the texts document each field. Port 0 disables a listener."""

    kubeconfigs: Annotated[tuple[Path, ...], _kubeconfigs] = option(
        "",
        "Kubeconfig of this node; several, separated by colons, are merged. Without it and hub_server, `$KUBECONFIG`.",
        name="kubeconfig",
        begins="Basics",
    )
    context: str = option("", "Context of the kubeconfig.", shown="the current one")
    servers: Annotated[tuple[Server, ...], _servers] = option(
        "", "kube-apiserver URLs, separated by commas.", name="server", shown="the kubeconfig's"
    )
    node: str = option(os.uname().nodename.lower(), "Name of this node.", shown="the host's name")
    pool: str = option("", "Node pool of this node.", shown="the node's label `apps.openyurt.io/nodepool`")
    state_dir: Folder = option(
        "/var/lib/edgehub",
        "Folder for copies, the journal and the CA of the TLS port, for the hub's user alone.",
    )
    bootstrap_kubeconfig: File = option(
        "",
        "Kubeconfig with a bootstrap token: the hub [requests its identity](reference.md#certificates).",
    )
    mode: Literal["edge", "cloud"] = option(
        "edge",
        "`edge`, or `cloud`: no disk, and no filters that only edge nodes need.",
    )
    server_order: ServerOrder = option(
        "round-robin", "`round-robin`, or `priority`: the first available server, in the listed order."
    )
    uplinks: Annotated[tuple[Uplink, ...], parse_uplinks] = option(
        "",
        "[Devices](links.md#several-uplinks) to the cloud, or their addresses, separated by commas, best first.",
        name="uplink",
        shown="by the node's routes",
    )
    link_budget: Annotated[LinkBudget | None, parse_link_budget] = option(
        "",
        "`20MB/day` or `5GB/month`, both directions together; beyond it the hub [warns](links.md#link-budget).",
    )
    allow_drills: bool = option(
        False,
        "`edgehub link` may [cut or slow the link](seeing.md#rehearse-an-outage). An interface always may.",
        begins="Interfaces and log",
    )
    allow_hold: bool = option(
        False,
        "`edgehub attach` may [hold and edit flows](attach.md). An interface always may.",
    )
    access_log: bool = option(
        False, "Log each request, as [`edgehub observe`](operations.md#observe) prints it."
    )
    show_secrets: bool = option(
        False, "Interfaces show values of Secrets, otherwise [hidden](seeing.md#what-flows-hide)."
    )
    show_managed_fields: bool = option(
        False,
        "Interfaces and `edgehub dump` show `managedFields`.",
    )
    show_own_requests: bool = option(
        False, "Interfaces also list the hub's own requests ([seeing](seeing.md))."
    )
    listen: IpAddress = option("127.0.0.1", "IP address of the ports for this node.", begins="Listeners")
    port: Port = option(10261, "Plain HTTP port for node components. 0: off.")
    tls_port: Port = option(10268, "TLS port for pods. 0: off.")
    admin_port: Port = option(10267, "Port of /healthz, /readyz, /metrics and /debug. 0: off.")
    plain_users: Users = option(
        "",
        "Users, by name or id, separated by commas, who may use the plain port and so do what the node can.",
        shown="every user",
    )
    allowed_hosts: Annotated[frozenset[str], _hosts] = option(
        "",
        "Host names that the plain and admin ports accept besides localhost and IP addresses, separated by commas "
        "([security](security.md#ports-and-callers)).",
    )
    pod_address: Annotated[PodAddress, parse_pod_address] = option(
        "",
        "IP address (or one per family) that filters write for pods. `auto`: [edgehub0 with "
        "169.254.2.1](nodes.md#the-address-for-pods).",
        shown="hub_listen",
        begins="Pods",
    )
    tls_cert: File = option(
        "",
        "Certificate of the TLS port. The default's CA is `pki/ca.crt` in the state dir.",
        shown="made at first start",
    )
    tls_key: File = option("", "Key of hub_tls_cert.")
    tls_signer: Literal["local", "cluster"] = option(
        "local",
        "`local`, the hub's own CA, or `cluster`, [which pods trust](reference.md#what-pods-trust).",
    )
    local_hosts: IpAddresses = option(
        "",
        "Addresses that kube-proxy gets as [endpoints of "
        "default/kubernetes](topology.md#the-endpoints-of-defaultkubernetes), one per family.",
        name="local_endpoint",
        shown="by the annotations",
    )
    local_port: Port = option(0, "Port of hub_local_endpoint. 0: hub_tls_port.")
    namespace: str = option(
        "kube-system", "Namespace of the [rules](rules.md) ConfigMap.", begins="Rules and filters"
    )
    configmap: str = option("yurt-hub-cfg", "Name of the rules ConfigMap.")
    disabled_filters: Names = option(
        "", "Filters that never apply, whatever the rules say; separated by commas."
    )
    filter_modules: Files = option(
        "",
        "Python files with [own filters](filters.md), separated by commas. Their code runs as the hub.",
        name="filter_module",
    )
    topology_order: Literal["any", "preferred"] = option(
        "any", "Several `topologyKeys`: `any` of them, or `preferred`: in their order."
    )
    local_health: HttpUrl = option(
        "",
        "URL of the site's [health service](topology.md#local-health).",
    )
    local_health_interval: Seconds = option(
        30,
        "Seconds between requests to hub_local_health. After three failures all nodes count as healthy.",
    )
    peer_port: Port = option(
        10269,
        "Port for hubs of the [pool](pool.md), the same on all nodes. 0: off, the hub reads from the cloud only.",
        begins="Pools",
    )
    peer_address: IpAddress = option("", "IP address of the peer port.", shown="every address")
    peer_cert: File = option(
        "",
        "Certificate of the peer port, signed by the cluster's CA for this node.",
        shown="requested by a CertificateSigningRequest",
    )
    peer_key: File = option("", "Key of hub_peer_cert.")
    peer_clients: Literal["pool", "nodes"] = option(
        "pool",
        "Clients of the peer port: `pool`, nodes of this pool; `nodes`, all, as a [relay](pool.md#relays).",
    )
    lend: Literal["on", "off"] = option(
        "on",
        "`on`: nodes of the pool without a link [borrow](links.md#borrowed-links) this node's.",
    )
    lend_rate: Kilobytes = option(
        1000,
        "Kilobytes a second for this node's traffic, which goes first, and lent links; half for one borrower.",
    )
    borrow: Literal["on", "off"] = option(
        "on", "Use another node's link while all links of this node are down."
    )
    leader_names: str = option(
        "",
        "First leaders, NODE/ADDRESS,…, for a [start offline](peers.md#which-server-a-follower-reads-from).",
        name="leaders",
    )
    relays: Annotated[tuple[Server, ...], _relays] = option(
        "",
        "Relays, https://host:port,…, that the hub reads shared resources from.",
        name="relay",
        shown="those of the pool's ConfigMap",
    )
    wait: Seconds = option(
        10, "Seconds that a request waits for rules or a first copy before 503.", begins="Times"
    )
    idle: Seconds = option(300, "Seconds without a client after which a source stops.")
    review_max_age: SecondsOrNone = option(
        0,
        "Seconds of an outage for which the last review of a token counts; 0: all of it.",
    )
    probe_interval: Annotated[float, parse_duration] = option(
        str(PROBE_INTERVAL),
        "Seconds without traffic from a server before a [probe](slow-links.md#slow-links).",
    )
    probe_timeout: Annotated[float, parse_duration] = option(
        str(PROBE_TIMEOUT),
        "Seconds without an answer before a server is down; more on long round trips.",
    )
    keep_days: Days = option(14, "Days without use until a copy is deleted; never in an outage.")
    kubelet_client_certificate: File = option(
        "",
        "Client certificate for [logs and streams](offline-kubectl.md#logs-and-exec) at kubelet in an outage.",
        begins="This node's kubelet",
    )
    kubelet_client_key: File = option("", "Key of hub_kubelet_client_certificate.")
    kubelet_certificate_authority: Folder = option(
        "/var/lib/kubelet/pki/kubelet.crt", "CA of kubelet's serving certificate, or that certificate."
    )

    @property
    def pod_addresses(self) -> tuple[str, ...]:
        """The addresses at which pods reach the hub."""
        return self.pod_address.addresses or (self.listen,)

    @property
    def local_endpoint(self) -> HubAddress | None:
        """The address at which the endpoints of default/kubernetes shall point; None if none is set."""
        return HubAddress(self.local_hosts, self.local_port or self.tls_port) if self.local_hosts else None

    @property
    def kubelet_files(self) -> tuple[Path | None, Path | None, Path]:
        """The hub's credentials for this node's kubelet: certificate and key, if any, and kubelet's CA."""
        return self.kubelet_client_certificate, self.kubelet_client_key, self.kubelet_certificate_authority

    @property
    def leaders(self) -> frozenset[LeaderHub]:
        """The pool's leaders until the hub has read the pool's ConfigMap; ValueError for malformed ones."""
        return frozenset(map(parse_leader_hub, filter(str.strip, self.leader_names.split(","))))

    @property
    def ports(self) -> dict[str, int]:
        """The ports of the hub's listeners, by the option of each; 0 if a listener is disabled."""
        return {
            "hub_port": self.port,
            "hub_tls_port": self.tls_port,
            "hub_peer_port": self.peer_port,
            "hub_admin_port": self.admin_port,
        }

    @property
    def plain_url(self) -> str:
        """The URL at which components reach the hub."""
        return f"http://{_host(self.listen)}:{self.port}"

    @property
    def tls_url(self) -> str:
        """The URL at which components with a certificate reach the hub."""
        return f"https://{_host(self.listen)}:{self.tls_port}"

    @property
    def admin_url(self) -> str:
        return f"http://{_host(self.listen)}:{self.admin_port}"

    @property
    def tls_addresses(self) -> tuple[str, ...]:
        """The addresses on which the TLS port listens, including those for pods that the hub creates."""
        has_own = self.pod_address.makes and not ipaddress.ip_address(self.listen).is_unspecified
        return (self.listen, *(self.pod_addresses if has_own else ()))

    @property
    def early_listeners(self) -> list[tuple[str, int]]:
        """The addresses that listen before the hub can answer. systemd keeps them open while a hub is replaced."""
        listeners = [(self.listen, self.port), *((host, self.tls_port) for host in self.tls_addresses)]
        return [(host, port) for host, port in listeners if port]


OPTIONS: tuple[Option, ...] = options_of(Settings)
"""Each option, `hub_…` in mitmproxy and a flag of `edgehub`."""


def parse_settings(values: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> Settings:
    """Parse settings from `{option name without "hub_": value}`; ValueError with a message for the operator."""
    from addons.filters.chain import check_names  # noqa: PLC0415 - behind leave_out_unused
    from addons.filters.plugins import is_plugin_name  # noqa: PLC0415 - as above

    if not any(values.get(name) for name in ("kubeconfig", "bootstrap_kubeconfig", "server")):
        values = {**values, "kubeconfig": environment.get("KUBECONFIG", "")}
    settings = read(Settings, values, "hub_")
    _check_identity(settings)
    taken = [port for port in settings.ports.values() if port]
    if len(set(taken)) != len(taken):
        raise ValueError("two listeners have the same port")
    if not settings.pod_address.addresses and ipaddress.ip_address(settings.listen).is_unspecified:
        raise ValueError(
            "hub_listen is every address: give the one at which pods reach the hub by hub_pod_address"
        )
    for name, kind in (("tls", "cert"), ("peer", "cert"), ("kubelet_client", "certificate")):
        if (getattr(settings, f"{name}_{kind}") is None) != (getattr(settings, f"{name}_key") is None):
            raise ValueError(f"hub_{name}_{kind} and hub_{name}_key must be given together")
    _check_pool(settings)
    _check_local_endpoint(settings)
    # Names of plugins are known only after loading; the hub's own are checked now.
    check_names(frozenset(name for name in settings.disabled_filters if not is_plugin_name(name)))
    return settings


def _check_identity(settings: Settings) -> None:
    """Check that the hub has a kubeconfig with an identity or a bootstrap token, or a server without an identity."""
    if settings.kubeconfigs and settings.bootstrap_kubeconfig is not None:
        raise ValueError("give either hub_kubeconfig or hub_bootstrap_kubeconfig, not both")
    if not settings.servers and not settings.kubeconfigs and not settings.bootstrap_kubeconfig:
        raise ValueError("no cloud: give hub_server or hub_kubeconfig")
    if settings.context and not settings.kubeconfigs:
        raise ValueError(
            "hub_context names a context of a kubeconfig: give hub_kubeconfig, or set KUBECONFIG"
        )
    if not is_node_name(settings.node):
        raise ValueError(f"give this node's name: hub_node {settings.node!r} is not a valid node name")


def _check_pool(settings: Settings) -> None:
    """Check the pool's name, that a relay has a certificate, and that leaders have a port."""
    if settings.peer_clients == "nodes" and (settings.mode != "cloud" or not settings.peer_cert):
        raise ValueError(
            "a relay, hub_peer_clients nodes, needs hub_mode cloud, hub_peer_cert and hub_peer_key"
        )
    if settings.pool and not is_node_name(settings.pool):  # the rule for names of both kinds
        raise ValueError(f"hub_pool {settings.pool!r} is not a valid name of a NodePool")
    if settings.leaders and not settings.peer_port:
        raise ValueError("hub_leaders needs hub_peer_port, which leaders have, too")


def _check_local_endpoint(settings: Settings) -> None:
    hosts = settings.local_hosts
    if settings.local_port and not hosts:
        raise ValueError("hub_local_port needs hub_local_endpoint")
    if hosts and not settings.local_port and not settings.tls_port:
        raise ValueError("hub_local_endpoint needs hub_local_port, for hub_tls_port is off")
    if len({family_of(host) for host in hosts}) != len(hosts):
        raise ValueError("hub_local_endpoint is one IP address per family")


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address
