"""The requests that the test cloud got, one entry each: tests count them, and faults select by them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kube.concurrency.notifier import Notifier
from kube.requests.request_info import RequestInfo

PATIENCE = 10.0
"""Seconds to wait for events that take milliseconds."""


@dataclass(slots=True)
class LoggedRequest:
    """A request. `status` is 0 until the response starts."""

    method: str
    path: str
    query: str
    user_agent: str
    accept: str
    user: str = ""
    status: int = 0
    info: RequestInfo | None = field(default=None, repr=False)
    """The parsed request, None if it cannot be parsed."""

    @property
    def verb(self) -> str:
        return self.info.verb if self.info else ""

    @property
    def resource(self) -> str:
        """Return the plural, with its subresource: "pods", "serviceaccounts/token"; "" if the request names no
        resource."""
        if self.info is None or self.info.type is None:
            return ""
        return f"{self.info.type.resource}/{self.info.subresource}".rstrip("/")


type Predicate = Callable[[LoggedRequest], bool]


def matching(
    *,
    verb: str = "",
    resource: str = "",
    path: str = "",
    user: str = "",
    user_agent: str = "",
    full_objects: bool = False,
) -> Predicate:
    """Return a predicate: True if all given values match; `user_agent` is a prefix, others must be equal. `whole`: the
    request is for full objects, not only for names and versions."""

    def predicate(request: LoggedRequest) -> bool:
        return (
            verb in {"", request.verb}
            and resource in {"", request.resource}
            and path in {"", request.path}
            and user in {"", request.user}
            and request.user_agent.startswith(user_agent)
            and not (full_objects and "as=PartialObjectMetadata" in request.accept)
        )

    return predicate


class RequestLog:
    """All requests since the start, or since `clear`, in order of arrival."""

    def __init__(self) -> None:
        self._requests: list[LoggedRequest] = []
        self._came = Notifier()

    def __iter__(self) -> Iterator[LoggedRequest]:
        return iter(list(self._requests))

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, request: LoggedRequest) -> None:
        self._requests.append(request)
        self._came.notify()

    async def until(self, predicate: Predicate, count: int = 1) -> None:
        """Wait until `count` requests match."""
        async with asyncio.timeout(PATIENCE):
            while len(self.where(predicate)) < count:
                await self._came.wait()

    def where(self, predicate: Predicate) -> list[LoggedRequest]:
        return [request for request in self if predicate(request)]

    def count(self, *, verb: str = "", resource: str = "", user_agent: str = "") -> int:
        """Count the matching requests; the arguments are those of `matching`."""
        return len(self.where(matching(verb=verb, resource=resource, user_agent=user_agent)))

    def clear(self) -> None:
        self._requests.clear()
