"""The hub's settings as one frozen value. `parse_settings` makes it of the options, and refuses what cannot be used."""

from __future__ import annotations

import ipaddress
import pwd
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import metadata
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from addons.filters.chain import build_filters
from addons.filters.foreign import is_foreign_name
from addons.filters.inputs import HubAddress, family_of
from addons.upstream.servers import Server, ServerOrder, parse_leaders, parse_relays, parse_server

Mode = Literal["edge", "cloud"]
PeerClients = Literal["pool", "nodes"]
AUTO_ADDRESS = "169.254.2.1"
"""The address for pods that the hub makes by itself: link-local, so that no network beyond the node has it."""
INTERNAL_MODE = "hub:internal@127.0.0.1:0"
"""The hub's own listener, on a free loopback port: reflectors and probes leave the node through it."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What an operator sets. Ports: 0 switches a listener off."""

    servers: tuple[Server, ...]
    kubeconfig: Path | None
    bootstrap_kubeconfig: Path | None
    """With a token, by which the hub asks for an identity of its own."""
    node: str
    pool: str
    state_dir: Path
    mode: Mode
    listen: str
    port: int
    tls_port: int
    peer_port: int
    """0: the hub neither serves nor reads the copies of other nodes."""
    peer_address: str
    """Where the peer port listens; "" is every address."""
    peer_clients: PeerClients
    """Whom the peer port serves: the nodes of this node's pool, or as a relay all nodes of the cluster."""
    relays: tuple[Server, ...]
    """Hubs in the cloud from which this hub reads what pools share; none for those that the pool's ConfigMap names."""
    leaders: tuple[Server, ...]
    """Leaders of the pool to begin with, until the hub has read the pool's ConfigMap."""
    peer_cert: Path | None
    peer_key: Path | None
    admin_port: int
    pod_addresses: tuple[str, ...]
    makes_pod_addresses: bool
    """Whether the hub itself gives the node these addresses, and listens there."""
    allowed_hosts: frozenset[str]
    plain_users: frozenset[int]
    """User ids; all of this node where it is empty."""
    tls_cert: Path | None
    tls_key: Path | None
    tls_signer: Literal["local", "cluster"]
    """Who signs the TLS port's certificate where the operator gives none."""
    namespace: str
    configmap: str
    server_order: ServerOrder
    disabled_filters: frozenset[str]
    filter_modules: tuple[Path, ...]
    """Files with filters that are not the hub's."""
    topology_order: Literal["any", "preferred"]
    local_endpoint: HubAddress | None
    local_health: str
    local_health_interval: int
    wait: int
    idle: int
    review_max_age: int
    keep_days: int
    allow_drills: bool
    """`edgehub link` may rehearse an outage."""
    show_secrets: bool
    """Interfaces show the values of Secrets."""


def version() -> str:
    """Of this program, as it is installed."""
    try:
        return metadata.version("kube-edgehub")
    except metadata.PackageNotFoundError:
        return "unknown"  # `mitmdump -s` from a checkout that is not installed


def parse_settings(values: Mapping[str, Any]) -> Settings:
    """Settings from `{option name without "hub_": value}`; ValueError in the operator's words."""
    servers = tuple(parse_server(text) for text in str(values["server"]).split(",") if text.strip())
    identity = _identity(values)
    if not servers and not any(identity.values()):
        raise ValueError("say where the cloud is: hub_server or hub_kubeconfig")
    if not values["node"]:
        raise ValueError("say which node this is: hub_node")
    ports = {name: values[name] for name in ("port", "tls_port", "peer_port", "admin_port")}
    for name, port in ports.items():
        if not 0 <= port <= 65535:
            raise ValueError(f"hub_{name} {port} is not a port")
    taken = [port for port in ports.values() if port]
    if len(set(taken)) != len(taken):
        raise ValueError("two listeners have the same port")
    if not values["pod_address"] and ipaddress.ip_address(_address(values["listen"])).is_unspecified:
        raise ValueError(
            "hub_listen is every address: say with hub_pod_address at which one pods reach the hub"
        )
    pod_addresses, makes = parse_pod_address(values["pod_address"] or values["listen"])
    for name in ("wait", "idle", "review_max_age", "local_health_interval"):
        if values[name] <= 0:
            raise ValueError(f"hub_{name} is seconds above 0")
    if values["keep_days"] <= 0:
        raise ValueError("hub_keep_days is days above 0")
    return Settings(
        servers=servers,
        node=values["node"],
        pool=values["pool"],
        state_dir=Path(values["state_dir"]).expanduser(),
        mode=_choice(values, "mode", "edge", "cloud"),
        listen=_address(values["listen"]),
        peer_address=_address(values["peer_address"]) if values["peer_address"] else "",
        pod_addresses=pod_addresses,
        makes_pod_addresses=makes,
        allowed_hosts=frozenset(words(values["allowed_hosts"].lower())),
        plain_users=_users(values["plain_users"]),
        namespace=values["namespace"],
        configmap=values["configmap"],
        server_order=_choice(values, "server_order", "round-robin", "priority"),
        disabled_filters=_disabled_filters(values["disabled_filters"]),
        filter_modules=tuple(Path(each).expanduser() for each in words(values["filter_module"])),
        topology_order=_choice(values, "topology_order", "any", "preferred"),
        local_endpoint=_local_endpoint(values),
        local_health=_health_url(values["local_health"]),
        local_health_interval=values["local_health_interval"],
        wait=values["wait"],
        idle=values["idle"],
        review_max_age=values["review_max_age"],
        keep_days=values["keep_days"],
        allow_drills=values["allow_drills"],
        show_secrets=values["show_secrets"],
        **ports,
        **identity,
        **_tls(values),
        **_pair(values, "peer"),
        **_relaying(values),
    )


def parse_pod_address(text: str) -> tuple[tuple[str, ...], bool]:
    """The addresses for pods, and whether the hub makes them: `auto`, or `auto,ADDRESS` with one for each family."""
    first, *others = text.split(",")
    if first.strip() != "auto":
        return _addresses(text), False
    return (_addresses(",".join(others)) if others else (AUTO_ADDRESS,)), True


def listener_modes(settings: Settings) -> list[str]:
    """The listeners but the peer port, as `addons.proxy.listener_mode` has them; addresses of IPv6 without brackets."""
    modes = [INTERNAL_MODE]
    if settings.port:
        modes.append(f"hub:plain@{settings.listen}:{settings.port}")
    if settings.tls_port:
        is_everywhere = ipaddress.ip_address(settings.listen).is_unspecified
        own = settings.pod_addresses if settings.makes_pod_addresses and not is_everywhere else ()
        modes += [f"hub:tls@{address}:{settings.tls_port}" for address in (settings.listen, *own)]
    return modes


def peer_spec(settings: Settings) -> str:
    """mitmproxy's mode specification of the peer port; "" where the port is off. It opens when the hub can serve."""
    if not settings.peer_port or (settings.mode == "cloud" and settings.peer_clients == "pool"):
        return ""
    host = f"{settings.peer_address}:" if settings.peer_address else ""
    return f"hub:peer@{host}{settings.peer_port}"


def _path(text: str) -> Path | None:
    return Path(text).expanduser() if text else None


def _identity(values: Mapping[str, Any]) -> dict[str, Any]:
    """The kubeconfig that has the hub's identity, or the one by which the hub asks for it."""
    kubeconfig, bootstrap = _path(values["kubeconfig"]), _path(values["bootstrap_kubeconfig"])
    if kubeconfig is not None and bootstrap is not None:
        raise ValueError("the hub has an identity, hub_kubeconfig, or asks for one, hub_bootstrap_kubeconfig")
    return {"kubeconfig": kubeconfig, "bootstrap_kubeconfig": bootstrap}


def _relaying(values: Mapping[str, Any]) -> dict[str, Any]:
    """Whether the hub is a relay, which needs a certificate of the operator's, and which hubs it reads from."""
    clients: PeerClients = _choice(values, "peer_clients", "pool", "nodes")
    if clients == "nodes" and (values["mode"] != "cloud" or not values["peer_cert"]):
        raise ValueError(
            "a relay, hub_peer_clients nodes, needs hub_mode cloud, hub_peer_cert and hub_peer_key"
        )
    leaders = parse_leaders(values["leaders"], values["peer_port"])
    if leaders and not values["peer_port"]:
        raise ValueError("hub_leaders needs hub_peer_port, which leaders have, too")
    return {"peer_clients": clients, "relays": parse_relays(values["relay"]), "leaders": leaders}


def _tls(values: Mapping[str, Any]) -> dict[str, Any]:
    """The certificate of the TLS port: the operator's, or who signs one."""
    return {**_pair(values, "tls"), "tls_signer": _choice(values, "tls_signer", "local", "cluster")}


def _pair(values: Mapping[str, Any], port: str) -> dict[str, Any]:
    """The files of a port's certificate and key; none, or both."""
    certificate, key = _path(values[f"{port}_cert"]), _path(values[f"{port}_key"])
    if (certificate is None) != (key is None):
        raise ValueError(f"hub_{port}_cert and hub_{port}_key belong together")
    return {f"{port}_cert": certificate, f"{port}_key": key}


def _local_endpoint(values: Mapping[str, Any]) -> HubAddress | None:
    """Where the endpoints of default/kubernetes are to lead; None when nothing is asked for."""
    port = values["local_port"]
    if not 0 <= port <= 65535:
        raise ValueError(f"hub_local_port {port} is not a port")
    if not values["local_endpoint"]:
        if port:
            raise ValueError("hub_local_port needs hub_local_endpoint")
        return None
    port = port or values["tls_port"]
    if not port:
        raise ValueError("hub_local_endpoint needs hub_local_port, for hub_tls_port is off")
    hosts = _addresses(values["local_endpoint"])
    if len({family_of(host) for host in hosts}) != len(hosts):
        raise ValueError("hub_local_endpoint is one IP address per family")
    return HubAddress(hosts, port)


def _disabled_filters(text: str) -> frozenset[str]:
    """The names; ValueError for one that no filter of the hub has. What is not the hub's is known at the start."""
    names = frozenset(words(text))
    known = [each.name for each in build_filters(health=True)]
    for name in sorted(each for each in names.difference(known) if not is_foreign_name(each)):
        nearest = get_close_matches(name, known, n=1)
        hint = f"is it {nearest[0]}?" if nearest else f"there are {', '.join(sorted(known))}"
        raise ValueError(f"hub_disabled_filters: there is no filter {name!r}: {hint}")
    return names


def _users(text: str) -> frozenset[int]:
    try:
        return frozenset(int(word) if word.isdecimal() else pwd.getpwnam(word).pw_uid for word in words(text))
    except KeyError as error:
        raise ValueError(
            f"hub_plain_users: this node has no user {error.args[0].rpartition(' ')[2]}"
        ) from None


def words(text: str) -> Iterator[str]:
    """The parts of an option that lists several, separated by commas."""
    return (word.strip() for word in text.split(",") if word.strip())


def _health_url(text: str) -> str:
    parts = urlsplit(text)
    if text and (parts.scheme not in ("http", "https") or not parts.hostname):
        raise ValueError(f"hub_local_health {text!r} is not of the form http://host:port/path")
    return text


def _addresses(texts: str) -> tuple[str, ...]:
    return tuple(_address(text) for text in texts.split(","))


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text.strip()))
    except ValueError:
        raise ValueError(f"{text!r} is not an IP address") from None


def _choice[T: str](values: Mapping[str, Any], name: str, *choices: T) -> T:
    for choice in choices:
        if values[name] == choice:
            return choice
    raise ValueError(f"hub_{name} is one of {', '.join(choices)}, not {values[name]!r}")
