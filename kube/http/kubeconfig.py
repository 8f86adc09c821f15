"""Reads the fields of a kubeconfig that a node's component needs: server, CA, client certificate, token.

A file that the kubeconfig names is read again when it changes, because kubelet's certificate and projected tokens
rotate.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509

from kube.http.exec_plugin import ExecCredentials, ExecPlugin, parse_exec
from kube.http.proxies import Proxy, parse_proxy

UNSUPPORTED_OF_USERS = (
    *("auth-provider", "username", "password"),
    *("as", "as-uid", "as-groups", "as-user-extra"),
)
"""Fields of a user that this module does not support, unless they are empty.

To ignore `as` would give a reader more rights than the file intends.
"""


@dataclass(slots=True)
class DataOrFile:
    """One credential, either in the kubeconfig or in a file that it names."""

    data: bytes = field(default=b"", repr=False)
    path: Path | None = None
    name: str = ""
    """The field of the kubeconfig."""
    _stamp: tuple[int, int, int] | None = None

    def read(self) -> bytes:
        """Read the current credential, b"" for none. OSError if its file has never been readable."""
        if self.path is None:
            return self.data
        try:
            status = self.path.stat()
            # Size as well as time: a half-written file and the complete one may have the same time.
            stamp = (status.st_mtime_ns, status.st_ino, status.st_size)
            if stamp != self._stamp and (data := self.path.read_bytes()):
                self.data, self._stamp = data, stamp
        except OSError as error:
            # A rotation may be half done, so the previous credential stays in use until the new one is readable.
            if not self.data:
                what = f"{self.name} of the kubeconfig: {error.strerror}" if self.name else error.strerror
                raise OSError(error.errno, what, str(self.path)) from None
        return self.data

    def read_token(self) -> str:
        """Return the first line, as a header has no further ones; "" if there is none. OSError as in `read`."""
        return next(iter(self.read().decode("ascii", "ignore").strip().splitlines()), "")


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster of a kubeconfig."""

    server: str = ""
    server_name: str = ""
    insecure: bool = False
    authority: DataOrFile = field(default_factory=DataOrFile)
    proxy: Proxy | None = None
    """The proxy to the server; None for the environment's proxy or none."""

    @property
    def authorities(self) -> list[x509.Certificate]:
        """The cluster's CA certificates; empty if the kubeconfig names none."""
        pem = self.authority.read()
        return x509.load_pem_x509_certificates(pem) if pem.strip() else []


@dataclass(frozen=True, slots=True)
class User:
    """A user of a kubeconfig, or none."""

    certificate: DataOrFile = field(default_factory=DataOrFile)
    key: DataOrFile = field(default_factory=DataOrFile)
    token: DataOrFile = field(default_factory=DataOrFile)
    plugin: ExecPlugin | None = None
    """The plugin that provides certificate, key and token, which are empty until it has run."""

    def use_output(self, given: ExecCredentials) -> None:
        """Use the plugin's output from now on."""
        self.token.data, self.certificate.data, self.key.data = given.token, given.certificate, given.key

    @property
    def bearer(self) -> str:
        """The value of the Authorization header, "" without a token."""
        token = self.token.read_token()
        return f"Bearer {token}" if token else ""


@dataclass(frozen=True, slots=True)
class Credentials:
    """A kubeconfig's context."""

    cluster: Cluster = field(default_factory=Cluster)
    user: User = field(default_factory=User)


NO_CREDENTIALS = Credentials()
"""For a cloud that needs no credentials, such as the demo's."""


type Locate = Callable[[Path], Path]
"""Maps a path in a kubeconfig to the path in this process, for example below another root."""


def _here(path: Path) -> Path:
    return path


def load_kubeconfig(*paths: Path, context: str = "", locate: Locate = _here) -> Credentials:
    """Load a context of one or more kubeconfigs, merged as by kubectl: the first file that defines a name wins.

    `context` is the current context if empty. ValueError, in the operator's terms, if it cannot be used.
    """
    documents = []
    for path in paths:
        try:
            document = yaml.safe_load(locate(path).read_text())
        except OSError as error:
            if isinstance(error, FileNotFoundError) and len(paths) > 1:
                continue  # as kubectl does: $KUBECONFIG may name a deleted one
            raise ValueError(f"kubeconfig {path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ValueError(f"kubeconfig {path}: {error}") from error
        except yaml.YAMLError:
            # The parser quotes a line: maybe a token.
            raise ValueError(f"kubeconfig {path}: it is not one document of YAML") from None
        documents.append((document, path.parent))
    try:
        if not documents:
            raise ValueError("there is no such file")
        return _merged(documents, context, locate)
    except ValueError as error:
        raise ValueError(f"kubeconfig {':'.join(map(str, paths))}: {error}") from None


def parse_kubeconfig(document: object, folder: Path, *, locate: Locate = _here) -> Credentials:
    """Parse a document as `load_kubeconfig` does. Relative file names are relative to `folder`."""
    return _merged([(document, folder)], "", locate)


def _merged(documents: Sequence[tuple[object, Path]], name: str, locate: Locate) -> Credentials:
    for document, _ in documents:
        if not isinstance(document, dict):
            raise ValueError("it is not a mapping, so it is no kubeconfig")
    mappings = [(document, folder) for document, folder in documents if isinstance(document, dict)]
    wanted = name or next(
        (current for document, _ in mappings if (current := document.get("current-context"))), None
    )
    if not wanted:
        raise ValueError("it has no current-context, and none is named")
    context, _ = _named(mappings, "contexts", wanted, "context")
    cluster, of_cluster = _named(mappings, "clusters", context.get("cluster"), "cluster")
    user, of_user = (
        _named(mappings, "users", context.get("user"), "user") if context.get("user") else ({}, of_cluster)
    )
    for name in UNSUPPORTED_OF_USERS:
        if user.get(name):
            raise ValueError(f"a user with {name} is not supported: use a certificate, a token or exec")
    authority = _data_or_file(cluster, "certificate-authority", of_cluster, locate)
    reached = Cluster(
        server=str(cluster.get("server") or ""),
        server_name=str(cluster.get("tls-server-name") or ""),
        insecure=bool(cluster.get("insecure-skip-tls-verify")),
        authority=authority,
        proxy=parse_proxy(str(cluster["proxy-url"])) if cluster.get("proxy-url") else None,
    )
    pieces = (
        _data_or_file(user, "client-certificate", of_user, locate),
        _data_or_file(user, "client-key", of_user, locate),
        _token(user, of_user, locate),
    )
    plugin = parse_exec(user["exec"], of_user, cluster, authority.read) if user.get("exec") else None
    if plugin is not None and any(piece.data or piece.path for piece in pieces):
        raise ValueError("a user has exec, and a certificate or a token besides")
    return Credentials(reached, User(*pieces, plugin))


def parse_server(document: object) -> str:
    """The server of the current context, even if its user is missing, as in the kubelet.conf that YurtHub writes."""
    if not isinstance(document, dict):
        raise ValueError("it is not a mapping, so it is no kubeconfig")
    mappings = [(document, Path())]
    context, _ = _named(mappings, "contexts", document.get("current-context"), "context")
    return str(_named(mappings, "clusters", context.get("cluster"), "cluster")[0].get("server") or "")


type _Documents = Sequence[tuple[Mapping[str, Any], Path]]
"""Kubeconfigs, each with its folder."""


def _named(documents: _Documents, plural: str, name: object, key: str) -> tuple[Mapping[str, Any], Path]:
    for document, folder in documents:
        entries = document.get(plural)
        for entry in entries if isinstance(entries, list) else []:
            if isinstance(entry, dict) and entry.get("name") == name:
                value = entry.get(key)
                return (value if isinstance(value, dict) else {}), folder
    raise ValueError(f"{plural} has no entry named {name!r}")


def _data_or_file(section: Mapping[str, Any], name: str, folder: Path, locate: Locate) -> DataOrFile:
    data, path = section.get(f"{name}-data"), section.get(name)
    if data:
        try:
            # Go's decoder ignores line breaks, and some tools wrap the text.
            return DataOrFile(base64.b64decode("".join(str(data).split()), validate=True))
        except ValueError:
            raise ValueError(f"{name}-data is not base64") from None
    return DataOrFile(path=locate(folder / str(path)), name=name) if path else DataOrFile()


def _token(user: Mapping[str, Any], folder: Path, locate: Locate) -> DataOrFile:
    # The file takes precedence, as in client-go, because the inline token may be old. It is used while there is no
    # file.
    token = str(user.get("token") or "").strip().encode("ascii", "ignore")
    if not token.decode().isprintable():
        raise ValueError("token is not a single line")
    file = user.get("tokenFile")
    return DataOrFile(token, locate(folder / str(file)), "tokenFile") if file else DataOrFile(token)
