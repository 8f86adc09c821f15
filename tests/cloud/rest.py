"""JSON over HTTP to a Kubernetes API, blocking: tests prepare a cluster with it, and check its state. It uses no code
of the product, so that a bug there cannot hide itself here."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlencode

import urllib3

from kube.json_type import Json

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"

ANSWER_TIMEOUT = 30.0
"""Seconds for a complete response: kube-apiserver on busy cores takes one; its own time-out is 60."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Json:
        """Return the body as a JSON object; raises ValueError for anything else."""
        parsed = json.loads(self.body)
        if not isinstance(parsed, dict):
            raise ValueError(f"not a JSON object: {self.body[:256]!r}")
        return parsed


class RestError(Exception):
    """A response with a status of 400 or more."""

    def __init__(self, question: str, answer: Answer) -> None:
        super().__init__(f"{question}: {answer.status} {answer.body[:512].decode(errors='replace')}")
        self.answer = answer


@dataclass(frozen=True, slots=True)
class WatchEvent:
    type: str
    object: Json


class RestClient:
    """A caller with one identity. Threads may share it; use it as a context manager, or close() it."""

    def __init__(
        self,
        server: str,
        *,
        authority: bytes = b"",
        certificate_files: tuple[str, str] | None = None,
        token: str = "",
        user_agent: str = "edgehub-tests",
    ) -> None:
        self.server = server.rstrip("/")
        context = ssl.create_default_context(cadata=authority.decode() or None)
        if certificate_files:
            context.load_cert_chain(*certificate_files)
        headers = {"User-Agent": user_agent, "Accept": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        self._pool = urllib3.PoolManager(headers=headers, retries=False, ssl_context=context)
        self._headers = headers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._pool.clear()

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request; return its response whatever its status. A body other than bytes is sent as JSON. Like all
        methods, raises TimeoutError or another OSError if there is no response."""
        sent = {**self._headers, "Content-Type": "application/json", **(headers or {})}
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        with self._open(method, path, query, data, sent, urllib3.Timeout(ANSWER_TIMEOUT)) as response:
            return _answer(response)

    def get(self, path: str, **query: str) -> Json:
        return self._json("GET", path, query=query)

    def post(self, path: str, body: object) -> Json:
        return self._json("POST", path, body=body)

    def put(self, path: str, body: object) -> Json:
        return self._json("PUT", path, body=body)

    def patch(self, path: str, body: object, content_type: str = MERGE_PATCH) -> Json:
        return self._json("PATCH", path, body=body, headers={"Content-Type": content_type})

    def delete(self, path: str) -> Json:
        return self._json("DELETE", path)

    def watch(
        self, path: str, *, timeout: float, accept: str = "application/json", **query: str
    ) -> Generator[WatchEvent]:
        """Yield events of a collection until the server ends the stream. Raises TimeoutError after `timeout` quiet
        seconds, ConnectionError when the stream breaks, RestError when it is refused."""
        patience = urllib3.Timeout(connect=ANSWER_TIMEOUT, read=timeout)
        headers = {**self._headers, "Accept": accept}
        with self._open("GET", path, {**query, "watch": "true"}, None, headers, patience) as response:
            if response.status != 200:
                raise RestError(f"watch {path}", _answer(response))
            pending = b""
            for chunk in response.stream():
                *lines, pending = (pending + chunk).split(b"\n")
                for line in lines:
                    event = json.loads(line)
                    yield WatchEvent(event["type"], event["object"])

    def wait_for(
        self, collection: str, name: str, condition: Callable[[Json], bool], *, timeout: float
    ) -> Json:
        """Wait until an object of a collection exists and meets the condition; return it; raises TimeoutError. The
        condition is evaluated on the current state first, then on each change."""
        deadline = time.monotonic() + timeout
        last: Json | None = None
        try:
            while (remaining := deadline - time.monotonic()) > 0:
                events = self.watch(collection, timeout=remaining, fieldSelector=f"metadata.name={name}")
                with closing(events), _patience_with_a_new_kind():
                    for event in events:
                        last = event.object if event.type in {"ADDED", "MODIFIED"} else None
                        if last is not None and condition(last):
                            return last
                        if time.monotonic() > deadline:
                            break
        except TimeoutError:
            pass
        seen = "it is not there" if last is None else f"last seen: {json.dumps(last)}"
        raise TimeoutError(f"{collection}/{name} is not as wanted after {timeout:g} s; {seen}")

    def _json(self, method: str, path: str, **more: Any) -> Json:
        answer = self.request(method, path, **more)
        if answer.status >= 400:
            raise RestError(f"{method} {path}", answer)
        return answer.json()

    @contextmanager
    def _open(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: bytes | None,
        headers: Mapping[str, str],
        timeout: urllib3.Timeout,
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        """Return a response whose body is unread; every network error until then is an OSError."""
        url = f"{self.server}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            with self._pool.request(
                method,
                url,
                body=body,
                headers=headers,
                timeout=timeout,
                preload_content=False,
                redirect=False,
            ) as response:
                yield response
        except urllib3.exceptions.TimeoutError as error:
            raise TimeoutError(f"{method} {url}: {error}") from error
        except urllib3.exceptions.HTTPError as error:
            raise ConnectionError(f"{method} {url}: {error}") from error


@contextmanager
def _patience_with_a_new_kind() -> Iterator[None]:
    """Wait some seconds for a custom resource, which answers 429 after its definition or the server was started."""
    try:
        yield
    except RestError as error:
        if error.answer.status != 429:
            raise
        time.sleep(0.5)


def _answer(response: urllib3.BaseHTTPResponse) -> Answer:
    return Answer(response.status, dict(response.headers), response.data)


def is_true(obj: Json, condition: str) -> bool:
    """True if an object's status has this condition as true."""
    conditions = obj.get("status", {}).get("conditions") or ()
    return any((each["type"], each["status"]) == (condition, "True") for each in conditions)
