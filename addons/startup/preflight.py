"""Checks the settings at start. Each error is one line that names the wrong option and the remedy."""

from __future__ import annotations

import errno
import os
import pwd
import socket
from collections.abc import Iterable, Sequence
from ipaddress import ip_address

from OpenSSL import SSL

from addons.certificates.serving_certificate import ServingCertificate
from addons.link.servers import Server
from addons.settings import Settings
from addons.startup.own_node import node_in, of_another
from kube.disk.atomic_file import read_file
from kube.http.kubeconfig import NO_CREDENTIALS, Credentials, load_kubeconfig
from kube.option import VERSION


def credentials_of(settings: Settings) -> Credentials:
    """Return the kubeconfig's credentials; anonymous ones without a kubeconfig. ValueError if it is unusable."""
    if not settings.kubeconfigs:
        return NO_CREDENTIALS
    try:
        return load_kubeconfig(*settings.kubeconfigs, context=settings.context)
    except ValueError as error:
        raise ValueError(f"{error}; give hub_kubeconfig the one of this node") from None


def doubt(settings: Settings, credentials: Credentials) -> str:
    """Return a warning if the identity is another node's, or if every process of this machine would get a user's
    rights; "" otherwise.
    """
    if why := of_another(settings, credentials):
        return why
    if not settings.port or settings.plain_users or not settings.kubeconfigs or node_in(credentials):
        return ""
    if not credentials.user.bearer and not credentials.user.certificate.read():
        return ""
    return (
        f"hub_kubeconfig {_named(settings)} is no node's: every process of this machine that reaches "
        f"{settings.plain_url} gets its rights. Allow one user by hub_plain_users {_user()}, or switch the port off by "
        "hub_port 0, and have clients send tokens of their own to the TLS port"
    )


def check(settings: Settings, servers: Iterable[Server]) -> None:
    """Raise ValueError for the first mistake, naming the options (`hub_…`)."""
    _check_certificate(settings)
    for server in servers:
        _check_server(settings, server)


def _check_certificate(settings: Settings) -> None:
    if settings.tls_cert is None or settings.tls_key is None or not settings.tls_port:
        return
    for option, file in (("hub_tls_cert", settings.tls_cert), ("hub_tls_key", settings.tls_key)):
        try:
            read_file(file)
        except OSError as error:
            raise ValueError(f"{option} {file} cannot be read: {error.strerror}") from None
    try:
        ServingCertificate(settings.tls_cert, settings.tls_key).use_in(SSL.Context(SSL.TLS_SERVER_METHOD))
    except SSL.Error:
        raise ValueError(
            f"hub_tls_cert {settings.tls_cert} and hub_tls_key {settings.tls_key} are not a PEM certificate "
            "and its private key"
        ) from None


def own_listener(settings: Settings, server: Server) -> str:
    """Return the option of the hub's own port if a server's address leads to it; "" for any other address."""
    for option, port in settings.ports.items():
        if port and port == server.port and _is_served(settings.listen, server.host):
            return option
    return ""


def _check_server(settings: Settings, server: Server) -> None:
    if option := own_listener(settings, server):
        where = "hub_server" if settings.servers else f"the server of hub_kubeconfig {_named(settings)}"
        raise ValueError(
            f"{where} is {server}, which is this hub itself ({option}): "
            "give hub_server the address of a kube-apiserver"
        )


def _user() -> str:
    """Return the user of this process as in `hub_plain_users`."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def _named(settings: Settings) -> str:
    """Return the path of the kubeconfig, or of the merged ones, as an operator writes them."""
    return os.pathsep.join(map(str, settings.kubeconfigs)) or str(settings.bootstrap_kubeconfig)


def _is_served(listen: str, host: str) -> bool:
    """Whether a connection to `host` reaches a listener at the address `listen` of this machine."""
    if host in ("localhost", os.uname().nodename):
        addresses = {"127.0.0.1", "::1"} if host == "localhost" else _addresses(host)
    else:
        try:
            addresses = {str(ip_address(host))}
        except ValueError:
            return False
    if ip_address(listen).is_unspecified:
        return any(_is_local(address) for address in addresses)
    return listen in addresses


def _addresses(host: str) -> set[str]:
    """Return the IP addresses to which this machine's own host name resolves; empty if it does not resolve."""
    try:
        return {str(address[4][0]).partition("%")[0] for address in socket.getaddrinfo(host, None)}
    except OSError:
        return set()


def _is_local(address: str) -> bool:
    """Whether the address is this machine's: only then can a socket be bound to it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def cannot_listen(error: OSError, settings: Settings) -> str:
    """Return the error message for a listener that could not be opened; `error.filename` ends with the listener's
    address.
    """
    address = str(error.filename).rpartition("@")[2]
    port = int(address.rpartition(":")[2])
    option = next((name for name, own in settings.ports.items() if own == port), "the listener")
    address_option = "hub_peer_address" if option == "hub_peer_port" else "hub_listen"
    cures = {
        errno.EADDRINUSE: "stop the process that has it, or choose another port",
        errno.EACCES: "choose a port above 1023, or give the process CAP_NET_BIND_SERVICE",
        errno.EADDRNOTAVAIL: f"{address_option} must be an address of this machine",
    }
    cure = cures.get(error.errno or 0, "")
    return f"{option}: cannot listen on {address}: {error.strerror}" + (f"; {cure}" if cure else "")


def start_line(settings: Settings, servers: Sequence[Server]) -> str:
    """Return the first line of the log: the version, the node and the addresses."""
    ports = {"plain": settings.port, "TLS": settings.tls_port, "admin": settings.admin_port}
    opened = ", ".join(f"{name} {port}" for name, port in ports.items() if port)
    return (
        f"edgehub {VERSION} starts: node {settings.node}, pool {settings.pool or '(as the node is labelled)'}, "
        f"ports on {settings.listen}: {opened or 'none'}, cloud {', '.join(map(str, servers))}, "
        f"state {settings.state_dir if settings.mode == 'edge' else '(none: mode cloud)'}"
    )
