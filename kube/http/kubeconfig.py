"""Reads the fields of a kubeconfig that a node's component needs: server, CA, client certificate, token.

A file that a kubeconfig names is read again when it changes: kubelet's certificate and projected tokens rotate.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509

UNSUPPORTED_OF_USERS = (
    *("exec", "auth-provider", "username", "password"),
    *("as", "as-uid", "as-groups", "as-user-extra"),
)
"""Fields of a user that this module does not read. A reader that ignored `as` would have more rights than it should."""


@dataclass(slots=True)
class Piece:
    """One credential, either in the kubeconfig or in a file that it names."""

    data: bytes = field(default=b"", repr=False)
    path: Path | None = None
    _stamp: tuple[int, int, int] | None = None

    def read(self) -> bytes:
        """The present credential, b"" for none; OSError when its file has never been readable."""
        if self.path is None:
            return self.data
        try:
            status = self.path.stat()
            # The size tells a half-written file from the whole one: the clock may give both the same time.
            stamp = (status.st_mtime_ns, status.st_ino, status.st_size)
            if stamp != self._stamp and (data := self.path.read_bytes()):
                self.data, self._stamp = data, stamp
        except OSError:
            # A rotation may be half done; the old credential serves until the new one is there.
            if not self.data:
                raise
        return self.data


@dataclass(frozen=True, slots=True)
class Credentials:
    """The current context of a kubeconfig."""

    server: str
    server_name: str
    insecure: bool
    authority: Piece
    certificate: Piece
    key: Piece
    token: Piece

    @property
    def authorities(self) -> list[x509.Certificate]:
        """The cluster's CAs; empty when the kubeconfig names none."""
        pem = self.authority.read()
        return x509.load_pem_x509_certificates(pem) if pem.strip() else []

    @property
    def bearer(self) -> str:
        """The value of an Authorization header, "" without a token."""
        token = self.token.read().decode("ascii", "ignore").strip()
        return f"Bearer {token}" if token else ""


NO_CREDENTIALS = Credentials("", "", False, Piece(), Piece(), Piece(), Piece())
"""For a cloud that asks for no credentials, such as the demo's."""


def load_kubeconfig(path: Path) -> Credentials:
    """The current context of a kubeconfig file; ValueError with a message for the operator when it cannot be used."""
    try:
        document = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"kubeconfig {path}: {error}") from error
    except yaml.YAMLError:
        raise ValueError(
            f"kubeconfig {path}: it is not YAML"
        ) from None  # the parser quotes a line: maybe a token
    try:
        return parse_kubeconfig(document, path.parent)
    except ValueError as error:
        raise ValueError(f"kubeconfig {path}: {error}") from None


def parse_kubeconfig(document: object, folder: Path) -> Credentials:
    """As `load_kubeconfig`, from the parsed document; relative file names are relative to `folder`."""
    document, context = _current(document)
    cluster = _named(document, "clusters", context.get("cluster"), "cluster")
    user = _named(document, "users", context.get("user"), "user") if context.get("user") else {}
    for name in UNSUPPORTED_OF_USERS:
        if name in user:
            raise ValueError(f"a user with {name} is not supported: use a certificate or a token")
    if "proxy-url" in cluster:
        raise ValueError("a cluster with proxy-url is not supported: servers are reached directly")
    return Credentials(
        server=str(cluster.get("server") or ""),
        server_name=str(cluster.get("tls-server-name") or ""),
        insecure=bool(cluster.get("insecure-skip-tls-verify")),
        authority=_piece(cluster, "certificate-authority", folder),
        certificate=_piece(user, "client-certificate", folder),
        key=_piece(user, "client-key", folder),
        token=_token(user, folder),
    )


def parse_server(document: object) -> str:
    """The server of the current context, whoever its user is: YurtHub's kubelet.conf names one that it has not."""
    document, context = _current(document)
    return str(_named(document, "clusters", context.get("cluster"), "cluster").get("server") or "")


def _current(document: object) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The document, and its current context."""
    if not isinstance(document, dict):
        raise ValueError("it is not a mapping, so it is no kubeconfig")
    return document, _named(document, "contexts", document.get("current-context"), "context")


def _named(document: Mapping[str, Any], plural: str, name: object, key: str) -> Mapping[str, Any]:
    entries = document.get(plural)
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, dict) and entry.get("name") == name:
            found = entry.get(key)
            return found if isinstance(found, dict) else {}
    raise ValueError(f"{plural} has no entry named {name!r}")


def _piece(section: Mapping[str, Any], name: str, folder: Path) -> Piece:
    data, path = section.get(f"{name}-data"), section.get(name)
    if data:
        try:
            # Go's decoder ignores line ends, and some tools wrap the text.
            return Piece(base64.b64decode("".join(str(data).split()), validate=True))
        except ValueError:
            raise ValueError(f"{name}-data is not base64") from None
    return Piece(path=folder / str(path)) if path else Piece()


def _token(user: Mapping[str, Any], folder: Path) -> Piece:
    # The file wins over the text, as in client-go: the text may be an old token. It serves while there is no file.
    token = str(user.get("token") or "").encode()
    return Piece(token, folder / str(user["tokenFile"])) if user.get("tokenFile") else Piece(token)
