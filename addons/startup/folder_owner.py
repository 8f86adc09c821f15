"""The owner of a state folder: node, identity and cluster. Content of another owner is moved aside, and not read.

After a copied disk image, a renamed node, or a kubeconfig of another user or cluster, the hub would otherwise serve the
other owner's objects while the cloud is away, and send its pending writes later.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

from addons.link.servers import Server
from addons.requests.caller import claims_of
from kube.disk.atomic_file import read_file, write_file
from kube.http.kubeconfig import Credentials

FILE = "owner.json"
SET_ASIDE_FOLDER = "set-aside"
"""Folder with the content moved aside last; earlier ones are deleted."""
HUB_ENTRIES = (
    *("cache", "cache.new", "cache.unreadable", "journal.done", "callers.key", "callers.done", "pki"),
    "rolled-back",
)
"""Entries that the hub creates in its state folder."""

logger = logging.getLogger(__name__)


class FolderOwner(NamedTuple):
    """The owner of a folder. An empty field is unknown, and matches any value."""

    node: str
    identity: str
    authorities: tuple[str, ...]
    """Digests of the public keys of the cluster's CAs. A renewed CA has the same key, or is added to the previous
    one.
    """
    servers: tuple[str, ...]
    prefixes: tuple[str, ...] = ()
    """Path prefixes of the servers. Behind one gateway clusters have its CA and address, and differ in this alone."""

    @classmethod
    def of(cls, node: str, credentials: Credentials, servers: Iterable[Server]) -> FolderOwner:
        """Return the owner according to settings and kubeconfig."""
        urls = {str(server): server.prefix for server in servers}
        prefixes = tuple(filter(None, urls.values()))
        return cls(node, _identity_of(credentials), _authorities_of(credentials), tuple(urls), prefixes)

    def is_another_than(self, other: FolderOwner) -> str:
        """Describe how two owners differ, for the operator; "" if they do not.

        Clusters are compared by their CAs or, without these, by their addresses.
        """
        if self.node and other.node and self.node != other.node:
            return f"node {other.node}"
        if self.identity and other.identity and self.identity != other.identity:
            return f"identity {other.identity}"
        mine, others = self.authorities or self.servers, other.authorities or other.servers
        if bool(self.authorities) is not bool(other.authorities):
            mine, others = self.servers, other.servers
        if mine and others and not {*mine} & {*others}:
            return f"cluster {', '.join(other.servers)}"
        if self.prefixes and other.prefixes and not {*self.prefixes} & {*other.prefixes}:
            return f"cluster {', '.join(other.servers)} at {', '.join(other.prefixes)}"
        return ""


def take_over(folder: Path, owner: FolderOwner) -> None:
    """Record the owner of a folder, and move another owner's content aside.

    ValueError, with a text for the operator, if that content cannot be moved: it must not be read. OSError if nothing
    can be written.
    """
    former = _read(folder / FILE)
    another = owner.is_another_than(former) if former is not None else ""
    if another:
        try:
            _set_aside(folder)
        except OSError as error:
            raise ValueError(
                f"hub_state_dir {folder} belongs to {another}, and cannot be moved ({error.strerror}): "
                "empty it, or give the hub a folder of its own"
            ) from None
        logger.warning(
            "the state folder %s belongs to %s: moved to %s, and this hub starts with an empty one",
            *(folder, another, folder / SET_ASIDE_FOLDER),
        )
    elif former is not None:
        known = {field: now for field, now in owner._asdict().items() if now}
        owner = former._replace(**known)
    if another or owner != former:
        write_file(folder / FILE, orjson.dumps(owner._asdict()))


def _set_aside(folder: Path) -> None:
    """Move all of the hub's entries, the owner file last, so that the next start continues after a crash."""
    fresh = folder / f"{SET_ASIDE_FOLDER}.new"
    fresh.mkdir(mode=0o700, exist_ok=True)
    for name in (*HUB_ENTRIES, FILE):
        if (folder / name).exists():
            (folder / name).rename(fresh / name)
    shutil.rmtree(folder / SET_ASIDE_FOLDER, ignore_errors=True)
    fresh.rename(folder / SET_ASIDE_FOLDER)


def _read(file: Path) -> FolderOwner | None:
    """Read a folder's owner; None if the file is missing (older hubs wrote none) or damaged."""
    try:
        said: Any = orjson.loads(read_file(file))
        return FolderOwner(
            *(str(said["node"]), str(said["identity"])),
            *(tuple(map(str, said["authorities"])), tuple(map(str, said["servers"]))),
            tuple(map(str, said.get("prefixes", ()))),  # releases before prefixes wrote none
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LookupError, TypeError) as error:
        logger.warning("%s cannot be read (%s): assuming that the folder is this hub's own", file, error)
        return None


def _identity_of(credentials: Credentials) -> str:
    """Return the user of the certificate, or the subject of the token; "" if only the cloud knows it."""
    try:
        pem = credentials.user.certificate.read()
        if pem.strip():
            subject = x509.load_pem_x509_certificates(pem)[0].subject
            names = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
            return str(names[0].value) if names else ""
        return str(claims_of(credentials.user.bearer).get("sub", ""))
    except (OSError, ValueError):
        return ""


def _authorities_of(credentials: Credentials) -> tuple[str, ...]:
    try:
        keys = [each.public_key() for each in credentials.cluster.authorities]
        raws = (key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo) for key in keys)
        return tuple(sorted(hashlib.sha256(raw).hexdigest() for raw in raws))
    except (OSError, ValueError):
        return ()
