"""Which connections carry the requests of callers with tokens of their own.

kube-apiserver ends a connection (GOAWAY) on which it was shown a bad token, and so disturbs all requests there. A token
that the server has accepted gets a connection of its own. All others share some: were each to get its own, a caller
could open a thousand with a thousand invented tokens.
"""

from __future__ import annotations

from addons.requests.caller import digest_of
from kube.bounds import Recent

MAX_TOKENS = 256
"""Tokens with a connection of their own: more than a node has pods. The least recently used one loses its own."""
SHARED_LANES = 16
"""Lanes of tokens that no server has accepted yet. A new token that is good seldom meets a bad one there."""
BEARER = "bearer "
"""What the Authorization of a token begins with, in any case."""
NO_LANE = ""
"""The lane of requests that carry no token of the caller."""


class TokenLanes:
    """Remembers tokens by their digest."""

    def __init__(self) -> None:
        self._accepted: Recent[str, None] = Recent(MAX_TOKENS, "lanes of tokens")

    def lane(self, authorization: str) -> str:
        """The lane of a request with an Authorization header: requests of one lane share connections."""
        digest = _digest(authorization)
        return digest if digest in self._accepted else f"shared {int(digest, 16) % SHARED_LANES}"

    def answered(self, authorization: str, status: int) -> None:
        """Note a server's answer to a token. It accepts one where it does, or forbids, what was asked.

        A server may refuse a request before it looks at the token. To kube-apiserver another scheme than Bearer is no
        sign of a user: it answers as to an anonymous caller, whatever was invented.
        """
        if not authorization.lower().startswith(BEARER):
            return
        if status == 401:
            self._accepted.pop(_digest(authorization), None)
        elif status < 300 or status == 403:
            self._accepted[_digest(authorization)] = None


def _digest(authorization: str) -> str:
    scheme, _, token = authorization.partition(" ")
    return digest_of(f"{scheme.lower()} {token}")
