"""Caches the API's discovery documents for an outage, because kubectl requests them first, and may never have done so
before.

It also requests other answers that the hub will need in an outage.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from addons.link.health import Cloud
from addons.offline.cached_response import CachedResponse, ResponseKey, response_key, unpacked
from addons.offline.cached_responses import CachedResponses
from addons.offline.offline_request import OfflineRequest
from addons.offline.people.discovery_forms import in_form, root_of
from addons.requests.answers import HEADERS, Answer
from addons.requests.offline_policy import AGGREGATED, DISCOVERY_PATHS, JSON
from kube.concurrency.backoff import Backoff
from kube.concurrency.notifier import completes_within
from kube.errors import StatusError
from kube.http.client import Client, Unreachable

ACCEPTED = {AGGREGATED: f"{AGGREGATED},{JSON}"}
"""The Accept header for each form: an older server has only its plain lists, and would answer 406 without that
alternative."""
INTERVAL = 3600.0
"""Seconds, about, between revalidations, each of which counts as a use of the answers. An unchanged answer costs some
300 bytes, by its ETag."""

type Leader = Callable[[], Awaitable[Client | None]]
"""Gives a hub that has asked the cloud for the paths already; None for the cloud itself."""

logger = logging.getLogger(__name__)


class Question(NamedTuple):
    """A request whose answer is cached."""

    method: str
    path: str
    form: str
    body: bytes = b""
    """The body as JSON."""

    @property
    def key(self) -> ResponseKey:
        return response_key("", self.path, self.form, "gzip", self.body)


class Discovery:
    """Fetches the documents with the hub's identity, and answers requests from the cache."""

    def __init__(
        self,
        client: Client,
        answers: CachedResponses,
        cloud: Cloud,
        further: Callable[[], Iterable[Question]] = tuple,
    ) -> None:
        """`further` returns further requests to make."""
        self._client = client
        self._answers = answers
        self._cloud = cloud
        self._further = further
        self._backoff = Backoff(first=0.1)  # the first look is before a server was chosen
        self._next = 0.0
        """When to ask the cloud again, in the loop's time."""
        self._has_returned = False
        """Whether the cloud was away since the last requests, so that answers to `further` may have changed."""

    async def run(self, leader: Leader | None = None) -> None:
        """Fetch and cache documents until cancelled.

        After a restart or an outage within INTERVAL only `further` is requested again, and that only after an outage.
        """
        loop = asyncio.get_running_loop()
        if all(self._answers.is_recent(question.key) for question in self._questions()):
            self._next = loop.time() + INTERVAL
        was_up = False
        while True:
            changed = self._cloud.changed.wait()
            was_up |= self._cloud.is_up
            self._has_returned |= was_up and not self._cloud.is_up
            is_renewed = not self._is_due or (
                self._cloud.is_up and await self._renew(leader, only_further=not self._is_all_due)
            )
            if is_renewed:
                self._backoff.forget()
            left = max(self._next - loop.time(), self._backoff.first)
            await completes_within(left if is_renewed else self._backoff.next(), changed)

    def _questions(self) -> Iterator[Question]:
        yield from (Question("GET", *item) for item in DISCOVERY_PATHS.items())
        yield from self._further()

    @property
    def _is_due(self) -> bool:
        return self._has_returned or self._is_all_due

    @property
    def _is_all_due(self) -> bool:
        """Whether to request everything: the interval is over, or an answer is missing."""
        is_cached = all(question.key.name in self._answers.index for question in self._questions())
        return asyncio.get_running_loop().time() >= self._next or not is_cached

    async def stored(self, path: str) -> CachedResponse | None:
        """Return the cloud's answer to one of the paths, as received."""
        return await self._answers.get(Question("GET", path, DISCOVERY_PATHS[path]).key)

    async def answer(self, request: OfflineRequest) -> Answer | None:
        """Return a cached document, in a form that the client accepts; None for another path, or an unreadable body.

        StatusError 406 if no form is acceptable.
        """
        path = request.info.path
        root = root_of(path) or path
        stored = await self.stored(root) if root in DISCOVERY_PATHS else None
        if stored is None:
            return None
        with contextlib.suppress(ValueError, LookupError):
            body, content_type = (
                unpacked(stored.headers, stored.body),
                stored.headers.get("content-type", JSON),
            )
            found = in_form(path, content_type, body, request.accept)
            return Answer(found[1], {**HEADERS, "Content-Type": found[0]}) if found is not None else None
        return None

    async def _renew(self, chosen: Leader | None = None, *, only_further: bool = False) -> bool:
        """Request each path; return whether the cloud answered all of them, with content or as unchanged."""
        self._has_returned = False
        leader = await chosen() if chosen is not None and not only_further else None
        try:
            for question in self._further() if only_further else self._questions():
                if leader is not None and not await self._copied(leader, question):
                    leader = None
                if leader is None and not await self._ask(question):
                    self._has_returned = True
                    return False
        except (StatusError, Unreachable):
            self._has_returned = True
            return False
        if not only_further:
            self._next = asyncio.get_running_loop().time() + INTERVAL
        return True

    async def _copied(self, leader: Client, question: Question) -> bool:
        """Fetch a path from the leader; return whether it answered. A leader of an earlier version does not."""
        with contextlib.suppress(StatusError, Unreachable):
            return question.path in DISCOVERY_PATHS and await self._status(leader, question, {}) == 200
        return False

    async def _ask(self, question: Question) -> bool:
        """Request an answer from the cloud and store it. Return False unless it has content, is unchanged, or is a 403
        or 404.

        Only a 403 removes an earlier answer: each cloud serves these paths, so that a 404 is a gateway's."""
        former = await self._answers.get(question.key)
        etag = former.headers.get("etag", "") if former is not None else ""
        status = await self._status(self._client, question, {"If-None-Match": etag} if etag else {})
        if status == 403:
            self._answers.forget(question.key.name)
        elif status not in (200, 201, 304, 404):
            logger.debug("%s is not stored for an outage: the cloud answers %d", question.path, status)
            return False
        return True

    async def _status(self, client: Client, question: Question, known: Mapping[str, str]) -> int:
        """Send a request, and store an answer with content."""
        headers = {"Accept": ACCEPTED.get(question.form, question.form), "Accept-Encoding": "gzip", **known}
        headers |= {"Content-Type": JSON} if question.body else {}
        answer = await client.relay(
            question.method, question.path, headers=headers.items(), body=question.body, is_own=True
        )
        if answer.status in (200, 201):
            self._answers.cache_response(question.key, answer.headers, answer.body)
        return answer.status
