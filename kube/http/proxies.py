"""The proxy to a server, from `proxy-url` or the environment, and the CONNECT request to it (RFC 9110, 9.3.6)."""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import unquote, urlsplit

MAX_HEAD = 16 * 1024
"""The most bytes of the head of a proxy's response."""
END = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy."""

    scheme: Literal["http", "https"]
    host: str
    port: int
    authorization: str = field(default="", repr=False)
    """The value of Proxy-Authorization, "" for none. Never logged or shown."""

    def __str__(self) -> str:
        return f"{self.scheme}://{_authority(self.host, self.port)}"

    def request(self, host: str, port: int) -> bytes:
        """The CONNECT request for a tunnel to a server."""
        authority = _authority(host, port)
        lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}"]
        if self.authorization:
            lines.append(f"Proxy-Authorization: {self.authorization}")
        return "\r\n".join([*lines, "", ""]).encode()

    def rest_of(self, answer: bytes) -> bytes | None:
        """The bytes after the head of a response; None while the head is incomplete. Raises as `opened`."""
        head, end, rest = answer.partition(END)
        if not end and len(head) <= MAX_HEAD:
            return None
        self.opened(head if end else b"")
        return rest

    def opened(self, head: bytes) -> None:
        """Raise ConnectionError, in the operator's terms, unless this response head opens the tunnel."""
        line = head.partition(b"\r\n")[0].decode("latin-1")
        version, _, status = line.partition(" ")
        if not version.startswith("HTTP/1.") or not status[:3].isdecimal():
            raise ConnectionError(f"the proxy {self} does not speak HTTP")
        if not status.startswith("2"):
            raise ConnectionError(f"the proxy {self} refuses: {status[:80]}")


def parse_proxy(url: str) -> Proxy:
    """Parse `http://[user:password@]host[:port]`, or https. ValueError for another URL; its message omits the
    password."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.scheme not in ("http", "https") or parts.path not in ("", "/"):
        raise ValueError("the URL of the proxy is not of the form http://[user:password@]host:port, or https")
    scheme: Literal["http", "https"] = "https" if parts.scheme == "https" else "http"
    return Proxy(
        scheme, host, port or (443 if scheme == "https" else 80), _basic(parts.username, parts.password)
    )


def proxy_for(
    scheme: str, host: str, port: int, given: Proxy | None, environment: Mapping[str, str]
) -> Proxy | None:
    """The proxy to a server: the kubeconfig's, or the environment's; None for a direct connection.

    Follows Go's `http.ProxyFromEnvironment`, which kubelet uses: `HTTPS_PROXY` for https and `HTTP_PROXY` for http, in
    upper or lower case, but not for loopback addresses and hosts in `NO_PROXY`. ValueError for an invalid URL.
    """
    if given is not None:
        return given
    url = _variable(environment, f"{scheme}_proxy")
    if not url or _is_loopback(host) or _is_excepted(host, port, _variable(environment, "no_proxy")):
        return None
    return parse_proxy(url)


def _variable(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name.upper()) or environment.get(name) or ""


def _is_excepted(host: str, port: int, no_proxy: str) -> bool:
    """True if NO_PROXY has the server: an address, a network, a domain with its subdomains, or `.domain` for
    subdomains only."""
    return any(
        _matches(entry.strip().lower(), host.lower(), port) for entry in no_proxy.split(",") if entry.strip()
    )


def _matches(pattern: str, host: str, port: int) -> bool:
    if pattern == "*":
        return True
    name, _, of_port = pattern.rpartition(":")
    if name and of_port.isdecimal() and (":" not in name or name.startswith("[")):
        if int(of_port) != port:
            return False
        pattern = name
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        pattern = pattern.removeprefix("*")
        return host.endswith(pattern if pattern.startswith(".") else f".{pattern}") or host == pattern
    try:
        return address in ipaddress.ip_network(pattern.strip("[]"), strict=False)
    except ValueError:
        return False


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _basic(user: str | None, password: str | None) -> str:
    if user is None:
        return ""
    both = f"{unquote(user)}:{unquote(password or '')}"
    return f"Basic {base64.b64encode(both.encode()).decode()}"


def _authority(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
