"""Refuses cross-site requests and kubelet's probes at ports where local callers need no credentials.

A page of any site can open a WebSocket to 127.0.0.1 (the browser adds the page's `Origin`), send simple requests (it
adds `Sec-Fetch-Site`), and resolve its own name to 127.0.0.1 (DNS rebinding: `Host` has that name). A pod can have
kubelet send a GET to any host and port, by a probe or a lifecycle hook.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import NamedTuple

from kube.errors import forbidden

OWN_SITE = frozenset({"same-origin", "none"})
"""The values of `Sec-Fetch-Site` for a request that was not caused by a page of another origin."""
KUBELET_AGENTS = ("kube-probe/", "kube-lifecycle/")
"""The beginnings of kubelet's User-Agent in probes and hooks, unless the pod sets another one."""
_AUTHORITY = re.compile(r"(?:\[(?P<address>[0-9a-f:.]+)\]|(?P<name>[0-9a-z_.-]+))(?::[0-9]{1,5})?")


class OwnAddress(NamedTuple):
    """The address by which a request reached the hub, and the hub's host names."""

    host: str
    port: int
    names: frozenset[str] = frozenset()
    """Host names in lower case."""

    def is_named(self, host: str) -> bool:
        """True if `host` names the hub: a loopback address, the address that the request reached, or one of its
        names."""
        if host in ("localhost", self.host) or host in self.names:
            return True
        try:
            address = ip_address(host)
        except ValueError:
            return False
        return address.is_loopback or str(address) == self.host


def refuse_web_pages(own: OwnAddress, authority: str, values_of: Callable[[str], Sequence[str]]) -> None:
    """Raise StatusError 403 if a browser sent, or may have sent, the request for a page of another origin.

    `authority` is from an absolute target or `:authority`, and may be empty. `values_of` returns each value of a
    header. A request without `Host` passes, because every browser sends one.
    """
    hosts = values_of("Host")
    for named in [authority, *hosts] if authority else hosts:
        if not own.is_named(_host_of(named)):
            raise forbidden(f"host {named!r} is not allowed; see the option --allowed-hosts")
    for origin in values_of("Origin"):
        if not _is_own_origin(own, origin):
            raise forbidden(f"requests of web pages of {origin!r} are not allowed")
    if any(site not in OWN_SITE for site in values_of("Sec-Fetch-Site")):
        raise forbidden("requests of other sites' web pages are not allowed")


def refuse_probes(user_agent: str) -> None:
    """Raise StatusError 403 for a probe or hook, which kubelet of this node sends on behalf of a pod."""
    if user_agent.startswith(KUBELET_AGENTS):
        raise forbidden("probes and hooks of pods are not allowed: they would use kubelet's identity")


def _is_own_origin(own: OwnAddress, origin: str) -> bool:
    scheme, _, authority = origin.partition("://")
    port = authority.rpartition(":")[2]
    return scheme in ("http", "https") and port == str(own.port) and own.is_named(_host_of(authority))


def _host_of(authority: str) -> str:
    """The host in lower case, without brackets and port; "" if no API client would send it."""
    match = _AUTHORITY.fullmatch(authority.lower())
    return (match["address"] or match["name"]) if match else ""
