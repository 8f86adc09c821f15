"""The manager's connection to the API server: TLS and identity of a kubeconfig or of the pod's service account."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import aiohttp

from kube.http.client import Client
from kube.http.http1 import Http1Session
from kube.http.kubeconfig import Credentials, Piece, load_kubeconfig

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where kubelet mounts a pod's identity."""
USER_AGENT = "edgehub-manager/0.1.0"


def find_credentials(kubeconfig: Path | None, environment: Mapping[str, str] = os.environ) -> Credentials:
    """Of the kubeconfig or, without one, of the pod; ValueError in the operator's words when there is none."""
    if kubeconfig is not None:
        return load_kubeconfig(kubeconfig)
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise ValueError("outside a cluster the manager needs --kubeconfig")
    return Credentials(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        server_name="",
        insecure=False,
        authority=Piece(path=SERVICE_ACCOUNT / "ca.crt"),
        certificate=Piece(),
        key=Piece(),
        token=Piece(path=SERVICE_ACCOUNT / "token"),
    )


def tls_context(credentials: Credentials) -> ssl.SSLContext:
    """What the credentials ask for; ValueError when their certificates cannot be used."""
    try:
        authority = credentials.authority.read().decode()
        context = ssl.create_default_context(cadata=authority or None)
        # Python 3.13 checks CAs strictly, and many clusters' CAs lack what it asks for.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if credentials.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        certificate, key = credentials.certificate.read(), credentials.key.read()
        if certificate:
            _load_pair(context, certificate, key)
    except (ssl.SSLError, OSError, UnicodeDecodeError) as error:
        raise ValueError(f"the certificates cannot be used: {error}") from error
    return context


def open_session(
    credentials: Credentials, before_sending: Callable[[], None] = lambda: None
) -> aiohttp.ClientSession:
    """A session for `connect`, to be closed by the caller.

    `before_sending` is called for each request when its connection is there; what it raises ends the request unsent.
    """

    async def as_credentials_say(
        request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        # The name that the server must prove to have, and is asked for by, where that is not the URL's host.
        request.server_hostname = credentials.server_name or None
        # Read for each request: projected tokens rotate within the hour.
        if bearer := credentials.bearer:
            request.headers["Authorization"] = bearer
        return await send(request)

    async def about_to_send(*_: object) -> None:
        before_sending()

    # In spite of its name this is aiohttp's last call before bytes are written.
    sending = aiohttp.TraceConfig()
    sending.on_request_headers_sent.append(about_to_send)
    secure = credentials.server.startswith("https:")
    connector = aiohttp.TCPConnector(
        limit=0, keepalive_timeout=30, ssl=tls_context(credentials) if secure else True
    )
    return aiohttp.ClientSession(
        connector=connector,
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        middlewares=[as_credentials_say],
        trace_configs=[sending],
    )


def connect(session: aiohttp.ClientSession, credentials: Credentials, identity: str) -> Client:
    """A client whose User-Agent names the process, so that an audit log shows which of several managers wrote."""
    return Client(Http1Session(session), credentials.server, {"User-Agent": f"{USER_AGENT} ({identity})"})


def _load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """OpenSSL takes a client certificate from files only; these are private, and gone at once."""
    with tempfile.TemporaryDirectory() as folder:
        pair = Path(folder) / "pair.pem"
        pair.touch(mode=0o600)
        pair.write_bytes(certificate + b"\n" + key)
        context.load_cert_chain(pair)
