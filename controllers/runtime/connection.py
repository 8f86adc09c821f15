"""The manager's connection to the API server, with the TLS settings and identity of a kubeconfig or of its pod."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import aiohttp

from kube.http.client import Client
from kube.http.http1 import Http1Session
from kube.http.kubeconfig import Credentials, Piece, load_kubeconfig
from kube.http.tls import tls_context

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The folder where kubelet mounts the service account of a pod."""
USER_AGENT = "edgehub-manager/0.1.0"


def find_credentials(kubeconfig: Path | None, environment: Mapping[str, str] = os.environ) -> Credentials:
    """The credentials of the kubeconfig or, without one, those that controller-runtime finds.

    They are those of $KUBECONFIG, of the pod, or of ~/.kube/config. ValueError says what is missing.
    """
    named = environment.get("KUBECONFIG")
    if kubeconfig is not None or named:
        return load_kubeconfig(kubeconfig or Path(named or ""))
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        default = Path(environment.get("HOME", "/"), ".kube", "config")
        if default.exists():
            return load_kubeconfig(default)
        raise ValueError("outside a cluster the manager needs --kubeconfig or $KUBECONFIG")
    return Credentials(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        server_name="",
        insecure=False,
        authority=Piece(path=SERVICE_ACCOUNT / "ca.crt"),
        certificate=Piece(),
        key=Piece(),
        token=Piece(path=SERVICE_ACCOUNT / "token"),
    )


def open_session(
    credentials: Credentials, before_sending: Callable[[], None] = lambda: None
) -> aiohttp.ClientSession:
    """A session for `connect`; the caller closes it.

    The session calls `before_sending` for each request once its connection is open. An exception from it ends the
    request before a byte is sent.
    """

    async def as_credentials_say(
        request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        # tls-server-name: the name in the server's certificate where it differs from the URL's host.
        request.server_hostname = credentials.server_name or None
        # Read the token for each request: kubelet replaces projected tokens within the hour.
        if bearer := credentials.bearer:
            request.headers["Authorization"] = bearer
        return await send(request)

    async def about_to_send(*_: object) -> None:
        before_sending()

    # Despite its name, aiohttp sends this signal just before it writes the headers.
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
