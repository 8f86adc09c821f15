"""The node's identity if no other program manages one: requested with a bootstrap token, stored, and renewed.

On a kubeadm node kubelet manages it, and this module is not used.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric import ec

from addons.certificates.requested_certificate import CertificateRequest, RequestedCertificate
from addons.certificates.serving_certificate import read_pair
from addons.certificates.signing_request import (
    Reporter,
    SigningFailed,
    client_request,
    event_sender,
    signed_certificate,
)
from addons.requests.clients import Clients
from kube.concurrency.notifier import Notifier
from kube.disk.atomic_file import read_file
from kube.errors import StatusError
from kube.http.kubeconfig import Credentials, DataOrFile, User, load_kubeconfig
from kube.http.session import Response, Session
from kube.json_type import Json

FILE = "pki/node.pem"
"""Path in the state folder: certificate and key, readable only by the hub's user."""
SUBJECT = "of this node"
RENEWAL = (0.7, 0.9)
"""Range of the lifetime's fraction after which the hub renews, as in kubelet: random, so that nodes do not all request
at once.
"""


class NodeCertificate:
    """The hub's identity. `run` requests and renews the certificate; `known` is set once the hub has one."""

    def __init__(self, bootstrap: Path, node: str, state: Path) -> None:
        """`bootstrap` is a kubeconfig with a token. ValueError if it cannot be used."""
        self._bootstrap, self._node, self._file = bootstrap, node, state / FILE
        named = load_kubeconfig(bootstrap)
        if not named.user.bearer:
            raise ValueError(f"kubeconfig {bootstrap}: it has no bootstrap token")
        self._piece = DataOrFile()
        self.credentials = Credentials(named.cluster, User(self._piece, self._piece))
        """The hub's credentials: anonymous until it has a certificate."""
        self.known = asyncio.Event()
        self._why = ""

    @property
    def why_unknown(self) -> str:
        """Why the hub has no identity yet; "" once it has one."""
        if self.known.is_set():
            return ""
        last = f": {self._why}" if self._why else ""
        return f"the cluster has not signed the certificate {SUBJECT} yet{last}"

    async def run(self, clients: Clients, cloud_changed: Notifier) -> None:
        """Request the certificate, and renew it in time, until cancelled. For `cloud_changed` see
        `RequestedCertificate`.
        """
        send = event_sender(clients.hub, self._node, SUBJECT)

        async def report(why: str) -> None:
            self._why = why
            if self.known.is_set():  # an Event needs an identity
                await send(why)

        async def sign(
            _names: tuple[str, ...], key: ec.EllipticCurvePrivateKey, unanswered: Reporter
        ) -> bytes:
            has_identity = certificate.current is not None
            return await self._sign(clients, client_request(self._node, key), unanswered, has_identity)

        def changed() -> None:
            if (pair := certificate.latest) is not None:
                self._piece.data = pair.pem
                self.known.set()

        request = CertificateRequest(_no_names, sign, lambda: random.uniform(*RENEWAL))
        certificate = RequestedCertificate(SUBJECT, self._file, request, cloud_changed, report)
        certificate.want(True)
        await certificate.run(changed)

    async def _sign(self, clients: Clients, request: Json, unanswered: Reporter, has_identity: bool) -> bytes:
        """Request a signature with the node's own identity while that is valid, otherwise with the bootstrap token."""
        if has_identity:
            try:
                return await signed_certificate(clients.hub, request, unanswered)
            except StatusError as error:
                if error.code != 401:
                    raise
        # The file is read each time, so that an operator can replace the token.
        token = (await asyncio.to_thread(load_kubeconfig, self._bootstrap)).user.bearer
        try:
            return await signed_certificate(clients.of_token(token), request, unanswered)
        except StatusError as error:
            raise _explained(error, self._bootstrap) from error


class NodeIdentity(NamedTuple):
    """The credentials that the hub sends, and the certificate that it manages itself."""

    credentials: Credentials
    certificate: NodeCertificate | None = None
    """None if another program manages the node's identity."""

    @property
    def why_unknown(self) -> str:
        """Why the hub has no identity yet; "" once it has one."""
        return self.certificate.why_unknown if self.certificate is not None else ""


class IdentifiedSession:
    """Session of the hub's identity. Its requests wait until the hub has one."""

    def __init__(self, session: Session, known: asyncio.Event) -> None:
        self._session = session
        self._known = known

    @asynccontextmanager
    async def open(
        self, method: str, url: str, *, headers: Iterable[tuple[str, str]], body: bytes | None, timeout: float
    ) -> AsyncIterator[Response]:
        """See `kube.http.session.Session.open`. The timeout begins once the hub has its identity."""
        await self._known.wait()
        async with self._session.open(method, url, headers=headers, body=body, timeout=timeout) as response:
            yield response


def saved_credentials(bootstrap: Credentials, state: Path) -> Credentials:
    """Return the identity of a hub with this state folder, for other programs; before its first certificate, the
    bootstrap token.
    """
    piece = DataOrFile()
    with contextlib.suppress(FileNotFoundError):
        piece.data = read_pair(read_file(state / FILE)).pem
    token = DataOrFile() if piece.data else bootstrap.user.token
    return Credentials(bootstrap.cluster, User(piece, piece, token))


async def _no_names() -> tuple[str, ...]:
    """Return no names: a client certificate has only a subject."""
    return ()


def _explained(error: StatusError, bootstrap: Path) -> Exception:
    if error.code == 401:
        return SigningFailed(
            f"the cloud rejects the token of {bootstrap}: it may have expired; make one "
            "(`kubeadm token create`) and put it there"
        )
    if error.code == 403:
        return SigningFailed(
            f"the token of {bootstrap} may not request certificates: bind its group to the ClusterRole "
            f"system:node-bootstrapper ({error.message})"
        )
    return error
