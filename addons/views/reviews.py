"""Asks the cloud for the user of a caller's token, and for the user's rights.

The hub also learns from the cloud's answers to the caller's own requests. It caches an answer for less than a minute.
Offline the last answer remains valid (`addons.views.known_callers`), also after a restart, until the token expires or
the answer reaches the age that the operator sets.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from addons.requests.caller import Caller, CredentialSource, expiry_of
from addons.requests.cloud_identity import HUB_IDENTITY, CloudIdentity
from addons.requests.object_read import ObjectRead
from addons.views.known_callers import MAX_ANSWERS, KnownCallers, StoredAnswer, user_text
from kube.bounds import Recent
from kube.errors import StatusError, forbidden, unauthorized, unavailable
from kube.http.access_review import Right, is_allowed, right_of, right_to, spec_of
from kube.http.client import Client, Unreachable
from kube.json_type import Json
from kube.requests.request_info import RequestInfo

PERMISSION_TTL = 40.0
"""Seconds for which a permission is cached online. Added to the interval between two checks of an open watch, it is
less than a minute."""
USER_TTL = 300.0
"""Seconds for which the user of a token is cached. The user alone gives no right to read."""
REFUSAL_TTL = 30.0
"""Seconds for which a refusal is cached: few, so that a right granted later takes effect soon."""
MAX_TOKENS = 1024
"""Tokens with cached answers: a node's pods have some dozens."""
USER_PATH = "/apis/authentication.k8s.io/v1/selfsubjectreviews"

USER = "whose token"
"""Stands in place of a right for the review that asks for a token's user."""

MAX_SHOWN = 256
"""Users whose newest token is in memory: the service accounts of a node's pods, and people."""

type Review = Right | tuple[str]
"""A right, or USER."""


class Reviewed(NamedTuple):
    """The cloud's answer, valid until the monotonic time `until`."""

    answer: str
    until: float


class Reviews:
    """Reviews callers with their own tokens, and caches the answers by the tokens' digests."""

    def __init__(
        self,
        client_of_token: Callable[[str], Client],
        max_age: float = 0,
        known: KnownCallers | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """`max_age` is in seconds: older answers expire, even offline; 0 means no limit.

        `known` has the answers that an earlier process received.
        """
        self._client_of_token = client_of_token
        self._max_age = max_age
        self._known = known or KnownCallers(clock=wall_clock)
        self._clock = clock
        self._wall_clock = wall_clock
        self._answers: Recent[str, Recent[Review, Reviewed]] = Recent(MAX_TOKENS, "tokens with reviews")
        """Cached answers by the token's digest."""
        self._shown: Recent[str, str] = Recent(MAX_SHOWN, "users with reviews")
        """The newest token of each user, in memory only. Journaled writes of the user are replayed with it."""
        self._asked: dict[tuple[str, Review], asyncio.Future[str]] = {}
        """The reviews in progress. After an outage hundreds of watches open at once, and need the same review."""

    async def identity(self, caller: Caller) -> CloudIdentity:
        """Return the identity with whose rights a caller reads; StatusError 401 if the caller has neither the hub's
        identity nor a valid token."""
        if caller.credential_source is CredentialSource.HUB:
            return HUB_IDENTITY
        token = caller.authorization
        if not token:
            raise unauthorized("Unauthorized")
        identity = CloudIdentity(await self.user(token), token)
        self._shown[identity.user] = token
        return identity

    def client_of_user(self, user: str) -> Client | None:
        """Return a client with the newest token that a user has sent to this process; None if there is none."""
        token = self._shown.get(user)
        return self._client_of_token(token) if token is not None else None

    async def user(self, authorization: str) -> str:
        """Return the user of a token; StatusError 401 if the token is invalid."""
        return await self._ask(authorization, (USER,), lambda: self._user(authorization))

    async def may_read(self, authorization: str, read: ObjectRead) -> None:
        """Return if the token's user may make this read itself; StatusError 401 or 403 otherwise."""
        await self._check(authorization, right_of(read.type, read.verb, "", read.namespace, read.name))

    async def may(self, authorization: str, info: RequestInfo) -> None:
        """Check as `may_read` does, for any request."""
        await self._check(authorization, right_to(info))

    async def may_in_namespace(self, authorization: str, info: RequestInfo) -> None:
        """Like `may`; also return if the token's user is known to have this right for all objects of the namespace."""
        if info.type is None or not info.name:
            await self.may(authorization, info)
            return
        try:
            await self.may(authorization, info._replace(name=""))
        except StatusError:
            await self.may(authorization, info)

    def learn(self, authorization: str, info: RequestInfo, code: int) -> None:
        """Learn a token's rights from the status code of the cloud's answer to its request.

        401: the token is invalid. 403: it may not do this. 2xx and 404: it may.
        """
        if code == 401:
            self._refused(authorization)
        elif code == 403:
            right = right_to(info)
            self._remember(authorization, right, _refusal(right))
        elif code in (200, 201) or (code == 404 and info.method == "GET"):
            self._remember(authorization, right_to(info), "")

    async def _check(self, authorization: str, right: Right) -> None:
        reason = await self._ask(authorization, right, lambda: self._access(authorization, right))
        if reason:
            raise forbidden(reason)

    async def _ask(self, authorization: str, review: Review, ask: Callable[[], Awaitable[str]]) -> str:
        token = self._known.digest_of(authorization)
        answers = self._answers.get(token)
        fresh = answers.use(review) if answers is not None else None
        if fresh is not None and self._clock() < fresh.until and not self._is_expired(authorization):
            return fresh.answer
        try:
            answer = await self._shared((token, review), ask)
        except (Unreachable, StatusError) as error:
            if _is_unanswered(error) and (stored := self._stored_answer(authorization, review)) is not None:
                if self._is_expired(authorization):
                    raise unauthorized("Unauthorized") from None
                return stored.answer
            if isinstance(error, Unreachable):
                raise unavailable(
                    "the caller cannot be verified: the cloud cannot be reached, and no review of this token for this "
                    "request is known"
                ) from error
            if not _is_unanswered(error):
                # A refusal deletes the stored permission, which would be valid again in an outage.
                self._forget(authorization, review)
                if error.code == 401:
                    self._refused(authorization)
            raise
        self._remember(authorization, review, answer)
        return answer

    def _stored_answer(self, authorization: str, review: Review) -> StoredAnswer | None:
        """Return the last answer that the cloud gave, also before a restart; None if it is older than `max_age`."""
        is_user = review == (USER,)
        stored = (
            self._known.user_of(authorization) if is_user else self._known.right_of(authorization, review)
        )
        if stored is not None and self._max_age and self._wall_clock() - stored.at >= self._max_age:
            return None
        return stored

    async def _shared(self, question: tuple[str, Review], ask: Callable[[], Awaitable[str]]) -> str:
        """Send one request for all concurrent callers, and return its answer to each, even if the first one leaves."""
        review = self._asked.get(question)
        if review is None:
            review = self._asked[question] = asyncio.ensure_future(ask())
            review.add_done_callback(lambda done: self._answered(question, done))
        try:
            return await asyncio.shield(review)
        finally:
            del review  # its error would refer to this frame, and so to itself

    def _answered(self, question: tuple[str, Review], review: asyncio.Future[str]) -> None:
        del self._asked[question]
        if not review.cancelled():
            review.exception()  # seen, also after its waiters have gone

    def _is_expired(self, authorization: str) -> bool:
        """Whether the token has expired by its own claim. While the cloud is reachable, the cloud decides that."""
        expiry = expiry_of(authorization)
        return expiry is not None and expiry <= self._wall_clock()

    def _remember(self, authorization: str, review: Review, answer: str) -> None:
        token, is_user = self._known.digest_of(authorization), review == (USER,)
        holds = USER_TTL if is_user else REFUSAL_TTL if answer else PERMISSION_TTL
        answers = self._answers.get(token) or Recent(MAX_ANSWERS, "reviews of a token")
        answers[review] = Reviewed(answer, self._clock() + holds)
        self._answers[token] = answers
        if is_user:
            self._known.store_user(authorization, answer)
        else:
            self._known.store_answer(authorization, review, answer)

    def _forget(self, authorization: str, review: Review) -> None:
        token = self._known.digest_of(authorization)
        if (answers := self._answers.get(token)) is not None:
            answers.pop(review, None)
        self._known.forget(authorization, None if review == (USER,) else review)

    def _refused(self, authorization: str) -> None:
        self._answers.pop(self._known.digest_of(authorization), None)
        self._known.delete_token(authorization)

    async def _user(self, authorization: str) -> str:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        client = self._client_of_token(authorization)
        answer = await client.request("POST", USER_PATH, body=json.dumps(review).encode())
        return answer.found(_reviewed_user)

    async def _access(self, authorization: str, right: Right) -> str:
        allowed = await is_allowed(self._client_of_token(authorization), spec_of(right))
        return "" if allowed else _refusal(right)


def _reviewed_user(review: Json) -> str:
    """Return the user that a SelfSubjectReview names."""
    user = review["status"]["userInfo"]
    name, groups = user.get("username", ""), user.get("groups", [])
    return user_text(name, groups, user.get("uid", ""), user.get("extra") or {})


def _refusal(right: Right) -> str:
    """Return the refusal of a right, worded as kube-apiserver's."""
    if len(right) == 2:
        verb, path = right
        return f'forbidden: cannot {verb} path "{path}"'
    verb, group, _, resource, subresource, namespace, _ = right
    where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    dotted = f"{resource}.{group}" if group else resource
    what = f"{resource}/{subresource}" if subresource else resource
    return f'{dotted} is forbidden: cannot {verb} resource "{what}" in API group "{group}" {where}'


def _is_unanswered(error: Unreachable | StatusError) -> bool:
    """Whether an error means that the cloud gave no answer, rather than a refusal."""
    return isinstance(error, Unreachable) or error.code >= 500 or error.code == 429
