"""The manager's connections to the API server, which are replaced when its account changes."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, Self

import aiohttp

from kube.http.client import Client
from kube.http.http1 import Http1Response, Http1Session
from kube.option import VERSION

REFRESH_INTERVAL = 10.0
"""Seconds between two readings of the account: certificates, tokens and kubeconfigs rotate."""
REFUSED_INTERVAL = 1.0
"""Seconds between two readings while the API server refuses the credentials."""
UNAUTHORIZED = 401
READ_BUFFER = 64 * 1024
"""Bytes that a connection buffers. The package's default of 2 MiB for each watch would waste memory."""

type SessionOptions = dict[str, Any]
"""Arguments of an `aiohttp.ClientSession`."""

logger = logging.getLogger(__name__)


class Account(Protocol):
    """The manager's identity, and its connections to the API server (`controllers.runtime.account`).

    Call `load` first.
    """

    async def load(self) -> None: ...

    @property
    def server(self) -> str: ...
    def headers(self) -> list[tuple[str, str]]: ...
    async def refresh(self, *, refused: bool) -> bool: ...
    def open(self, options: SessionOptions) -> aiohttp.ClientSession: ...


class _Connections:
    """The connections of one state of the account. They are closed after the account has changed and their last
    response has ended."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.http = Http1Session(session)
        self.users = 0


class AccountSession:
    """A `kube.http.session.Session` with the account's API server, and a context manager; URLs are paths."""

    def __init__(self, account: Account, before_sending: Callable[[], None] = lambda: None) -> None:
        """`before_sending` is called for each request once its connection is open. If it raises, the request fails
        before a byte is sent."""
        self._account = account
        self._options = session_options(before_sending)
        self._current = _Connections(account.open(self._options))
        self._looked_at = asyncio.get_running_loop().time()
        self._refused = False
        self._refreshing: asyncio.Task[None] | None = None
        self._previous: set[_Connections] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.wait({self._refreshing})
        for connections in (self._current, *self._previous):
            await connections.http.close()

    @asynccontextmanager
    async def open(
        self, method: str, url: str, *, headers: Iterable[tuple[str, str]], body: bytes | None, timeout: float
    ) -> AsyncIterator[Http1Response]:
        """Send a request; see `kube.http.session.Session.open`."""
        self._refresh_in_time()
        connections = self._current
        connections.users += 1
        identity = self._account.headers()
        try:
            async with connections.http.open(
                method, self._account.server + url, headers=[*headers, *identity], body=body, timeout=timeout
            ) as response:
                # Credentials that have changed meanwhile are not the refused ones.
                self._refused = response.status == UNAUTHORIZED and identity == self._account.headers()
                yield response
        finally:
            connections.users -= 1
            if connections in self._previous and not connections.users:
                self._previous.discard(connections)
                await connections.http.close()

    def _refresh_in_time(self) -> None:
        """Refresh the account in the background: a credential plugin may take seconds, and requests need not wait for
        it."""
        now = asyncio.get_running_loop().time()
        due = now >= self._looked_at + (REFUSED_INTERVAL if self._refused else REFRESH_INTERVAL)
        if due and (self._refreshing is None or self._refreshing.done()):
            self._looked_at = now
            self._refreshing = asyncio.ensure_future(self._refresh())

    async def _refresh(self) -> None:
        refused, self._refused = self._refused, False
        try:
            if not await self._account.refresh(refused=refused):
                return
            connections = _Connections(self._account.open(self._options))
        except (ValueError, OSError) as error:
            logger.warning("the previous credentials stay in use: %s", error)
            return
        previous, self._current = self._current, connections
        if previous.users:
            self._previous.add(previous)
        else:
            await previous.http.close()
        logger.info("new connections: the account has changed")


def find_account(kubeconfig: Path | None, environment: Mapping[str, str] = os.environ) -> Account:
    """Return the account of a kubeconfig, or else the process's own; ValueError if there is none."""
    paths = kubeconfig_paths(kubeconfig, environment)
    try:
        from controllers.runtime import account  # noqa: PLC0415  # the package costs a second, which only a cluster needs
    except ModuleNotFoundError as error:
        raise ValueError(f"the manager needs the package kubernetes, version 37 ({error})") from error
    return account.KubeconfigAccount(paths) if paths else account.PodAccount(environment)


def kubeconfig_paths(kubeconfig: Path | None, environment: Mapping[str, str]) -> str:
    """Find the kubeconfig as controller-runtime does: --kubeconfig, $KUBECONFIG, "" for the pod's account, or
    ~/.kube/config.

    ValueError if none of them exists.
    """
    if paths := str(kubeconfig or "") or environment.get("KUBECONFIG", ""):
        return paths
    if environment.get("KUBERNETES_SERVICE_HOST"):
        return ""
    default = Path(environment.get("HOME", "/"), ".kube", "config")
    if default.exists():
        return str(default)
    raise ValueError("outside a cluster the manager needs --kubeconfig or $KUBECONFIG")


def session_options(before_sending: Callable[[], None]) -> SessionOptions:
    """Return options for the manager's client: undecoded bodies, and no cookies.

    The session calls `before_sending` for each request once its connection is open.
    """

    async def about_to_send(*_: object) -> None:
        before_sending()

    # Despite its name, aiohttp sends this signal just before it writes the headers.
    sending = aiohttp.TraceConfig()
    sending.on_request_headers_sent.append(about_to_send)
    return {
        "auto_decompress": False,
        "cookie_jar": aiohttp.DummyCookieJar(),
        "read_bufsize": READ_BUFFER,
        "trace_configs": [sending],
    }


def connect(session: AccountSession, identity: str) -> Client:
    """Return a client whose User-Agent names the process, so that an audit log shows which of several managers
    wrote."""
    return Client(session, "", {"User-Agent": f"edgehub-manager/{VERSION} ({identity})"})
