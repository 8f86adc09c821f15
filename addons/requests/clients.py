"""The hub's clients of its own listener. Each says with every request whose credentials the request may carry.

The internal listener lends the hub's identity only to requests that ask for it in so many words. A caller's request
whose Authorization got lost on the way is refused there: it never becomes the hub's.
"""

from __future__ import annotations

from addons.requests.caller import Caller, Lending
from addons.requests.cloud_identity import CloudIdentity
from addons.requests.headers import INTERNAL_HEADER, LENDING_HEADER
from addons.telemetry.labels import HUB
from kube.http.client import Client
from kube.http.session import Session

USER_AGENT = {"User-Agent": HUB}


class Clients:
    """Makes clients of one session and one listener."""

    def __init__(self, session: Session, url: str, secret: str) -> None:
        """`secret` opens the internal listener, and is this process' own."""
        client = Client(session, url, {INTERNAL_HEADER: secret})
        self._lent = client.with_headers({LENDING_HEADER: Lending.HUB})
        self._own = client.with_headers({LENDING_HEADER: Lending.OWN})
        self.hub = self._lent.with_headers(USER_AGENT)
        """Sends the hub's own requests."""

    def of(self, identity: CloudIdentity) -> Client:
        """A client with the rights of an identity."""
        return self.hub if identity.is_hub else self.of_token(identity.authorization)

    def of_token(self, authorization: str) -> Client:
        """A client with the rights of a token's user, whoever that is. ValueError where there is no token."""
        if not authorization:
            raise ValueError("a client of a token needs the token")
        return self._own.with_headers({**USER_AGENT, "Authorization": authorization})

    def relaying(self, caller: Caller) -> Client:
        """Sends a caller's request as it is. The Authorization, if any, is among the request's own headers."""
        return self._lent if caller.lending is Lending.HUB else self._own
