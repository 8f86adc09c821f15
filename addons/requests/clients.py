"""The hub's clients of the servers. Each sends by the session of one identity: the hub's, or that of a token.

A session refuses a request that carries another identity, so a caller's request that lost its Authorization never
becomes the hub's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from addons.requests.caller import Caller, CredentialSource
from addons.requests.cloud_identity import CloudIdentity
from addons.telemetry.labels import HUB
from kube.bounds import Recent
from kube.errors import StatusError
from kube.http.client import ApiResponse, Client, Unreachable, WatchStream
from kube.http.retry_after import Pauses
from kube.http.session import Response, Session

CLOUD = ""
"""The URL of no server: the session chooses one of the cloud."""
USER_AGENT = {"User-Agent": HUB}
MAX_TOKENS = 16
"""Tokens of one user, the last used of which stay. Each costs one request when all of them are refused."""


class NodeReads(Client):
    """Reads with the node's identity. A cloud that does not know it (401) counts as no cloud.

    The 401 is no answer to the hub's callers: the node's copies stay, and serve.
    """

    def _refused(self, response: Response, body: bytes) -> StatusError | Unreachable:
        if response.status == 401:
            return Unreachable("the cloud does not accept the node's identity")
        return super()._refused(response, body)


class Clients:
    """Makes clients of two sessions."""

    def __init__(self, lent: Session, own: Session) -> None:
        """`lent` sends with the hub's identity, `own` with the Authorization of each request."""
        pauses = Pauses()
        self._lent = Client(lent, CLOUD, {}, pauses)
        self._own = Client(own, CLOUD, {}, pauses)
        self.hub = self._lent.with_headers(USER_AGENT)
        """Sends the hub's own requests."""
        self._reading = NodeReads(lent, CLOUD, USER_AGENT, pauses)

    def of(self, identity: CloudIdentity) -> Client:
        """A client that reads with the rights of an identity."""
        return self._reading if identity.is_hub else self.of_token(identity.authorization)

    def of_token(self, authorization: str) -> Client:
        """A client with the rights of a token's user. ValueError where there is no token."""
        if not authorization:
            raise ValueError("a client of a token needs the token")
        return self._own.with_headers({**USER_AGENT, "Authorization": authorization})

    def relaying(self, caller: Caller) -> Client:
        """Sends a caller's request as it is. The Authorization, if any, is among the request's own headers."""
        return self._lent if caller.credential_source is CredentialSource.HUB else self._own


class TokenClients(Client):
    """The clients of one user's tokens as one client, which outlives each of the tokens.

    Pods of a service account share the user's sources. A pod's token ends with the pod, and the others read on: the
    newest token is used, and where the cloud refuses it with 401, it is dropped, and the next one is used.
    """

    def __init__(self, authorization: str, client: Client) -> None:
        self._clients: Recent[str, Client] = Recent(MAX_TOKENS, "tokens of a user")
        self._clients[authorization] = client

    def add(self, authorization: str, client: Client) -> None:
        """Ask with this token first."""
        self._clients[authorization] = client

    async def request(self, *arguments: Any, **options: Any) -> ApiResponse:
        while True:
            authorization, client = self._newest
            try:
                return await client.request(*arguments, **options)
            except StatusError as error:
                self._drop(authorization, error)

    @asynccontextmanager
    async def watch(self, *arguments: Any, **options: Any) -> AsyncIterator[WatchStream]:
        async with AsyncExitStack() as stack:
            while True:
                authorization, client = self._newest
                try:
                    stream = await stack.enter_async_context(client.watch(*arguments, **options))
                    break
                except StatusError as error:
                    self._drop(authorization, error)
            yield stream

    @property
    def _newest(self) -> tuple[str, Client]:
        return next(reversed(self._clients.items()))

    def _drop(self, authorization: str, error: StatusError) -> None:
        """Drop a refused token. Raise the error again if it is another one, or no token is left."""
        if error.code != 401 or set(self._clients) == {authorization}:
            raise error
        self._clients.pop(authorization, None)
