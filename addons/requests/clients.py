"""The hub's clients of kube-apiserver. Each uses the session of one identity: the hub's, or a token's.

A session refuses a request with another identity, so a caller's request that lost its Authorization never gets the
hub's.
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
"""Placeholder for a server URL: the session chooses a server of the cloud."""
USER_AGENT = {"User-Agent": HUB}
MAX_TOKENS = 16
"""Maximum tokens stored for one user, least recently used dropped first. Each costs one request if all are refused."""


class NodeReads(Client):
    """Client with the node's identity. It treats a 401 as an unreachable cloud.

    So the node's copies stay in use, and the hub's callers never get that 401.
    """

    def _refused(self, response: Response, body: bytes) -> StatusError | Unreachable:
        if response.status == 401:
            return Unreachable("the cloud does not accept the node's identity")
        return super()._refused(response, body)


class Clients:
    """Creates clients on two sessions."""

    def __init__(self, lent: Session, own: Session) -> None:
        """`lent` sends with the hub's identity, `own` with the Authorization header of each request."""
        pauses = Pauses()
        self._lent = Client(lent, CLOUD, {}, pauses)
        self._own = Client(own, CLOUD, {}, pauses)
        self.hub = self._lent.with_headers(USER_AGENT)
        """Client for the hub's own requests."""
        self._reading = NodeReads(lent, CLOUD, USER_AGENT, pauses)

    def of(self, identity: CloudIdentity) -> Client:
        """Return a client that reads with an identity's rights."""
        return self._reading if identity.is_hub else self.of_token(identity.authorization)

    def of_token(self, authorization: str) -> Client:
        """Return a client with the rights of a token's user. ValueError if `authorization` is empty."""
        if not authorization:
            raise ValueError("a client of a token needs the token")
        return self._own.with_headers({**USER_AGENT, "Authorization": authorization})

    def relaying(self, caller: Caller) -> Client:
        """Return the client that relays a caller's request. The caller's Authorization, if any, is among the request's
        own headers.
        """
        return self._lent if caller.credential_source is CredentialSource.HUB else self._own


class TokenClients(Client):
    """One client for all tokens of a user, which outlives each single token.

    Pods of a service account share the user's sources, and a pod's token expires with the pod. The newest token is
    used; if the cloud refuses it with 401, it is dropped, and the next newest one is used.
    """

    def __init__(self, authorization: str, client: Client) -> None:
        self._clients: Recent[str, Client] = Recent(MAX_TOKENS, "tokens of a user")
        self._clients[authorization] = client

    def add(self, authorization: str, client: Client) -> None:
        """Add a token, to be used first."""
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
        """Drop a token that got a 401. Raise any other error again, and the 401 of the last token."""
        if error.code != 401 or set(self._clients) == {authorization}:
            raise error
        self._clients.pop(authorization, None)
