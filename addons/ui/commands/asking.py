"""Queries the admin port of a running hub, and writes its answers to files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException
from typing import BinaryIO
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import ProxyHandler, Request, build_opener

TIMEOUT = 60.0
"""Seconds for an answer. The hub computes long reports one after the other."""
JSON = "application/json"


class NoAnswer(Exception):
    """Raised if the hub does not answer or refuses; the message is for the user."""


@contextmanager
def open_page(
    admin: str,
    page: str,
    query: Mapping[str, str] | None = None,
    *,
    accept: str = JSON,
    body: bytes | None = None,
    kind: str = "application/yaml",
) -> Iterator[BinaryIO]:
    """Send a GET, or a POST if `body` is given with its media type `kind`, and yield the answer as a stream.

    `page` is below /debug/, or a complete path if it begins with a slash. NoAnswer if the hub does not answer, refuses,
    or disconnects.
    """
    url = f"{admin.rstrip('/')}{page if page.startswith('/') else f'/debug/{page}'}" + (
        f"?{urlencode(query)}" if query else ""
    )
    if not url.startswith(("http://", "https://")):
        raise NoAnswer(f"{admin} is no http URL")
    headers = {"Accept": accept, **({"Content-Type": kind} if body is not None else {})}
    try:
        request = Request(url, data=body, headers=headers)  # noqa: S310 - the scheme was looked at
    except ValueError:
        raise NoAnswer(f"{admin} is no http URL") from None
    # No proxy: the admin port is on this node.
    opener = build_opener(ProxyHandler({}))
    try:
        with opener.open(request, timeout=TIMEOUT) as answer:
            found = answer.headers.get_content_type()
            if found == "text/html" or (accept == JSON and "json" not in found):
                raise NoAnswer(f"{admin} is no admin port of a hub: --admin names the port of one")
            yield answer
    except HTTPError as error:
        raise NoAnswer(f"the hub at {admin} refuses: {_message(error)}") from None
    except BrokenPipeError:
        raise  # an error of the caller's output: urllib wraps those of the connection
    except (URLError, HTTPException, TimeoutError, ConnectionError) as error:
        why = error.reason if isinstance(error, URLError) else error
        if isinstance(why, ConnectionRefusedError):
            why = "nothing listens there: does a hub run here? --admin names another port of it"
        elif isinstance(why, OSError):
            why = why.strerror or why
        raise NoAnswer(f"the hub at {admin} does not answer: {why}") from None


def new_file(path: str) -> BinaryIO:
    """Create a file that only this user may read. OSError if it exists, or cannot be created."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def write_new(path: str, content: bytes) -> str:
    """Write a file created by `new_file`, and return a line about it. NoAnswer if that fails."""
    try:
        with new_file(path) as file:
            file.write(content)
    except OSError as error:
        raise NoAnswer(f"{path}: {error.strerror}") from None
    return f"{path}: {len(content)} bytes"


def _message(error: HTTPError) -> str:
    said = error.read().decode(errors="replace")
    try:
        return str(json.loads(said)["message"])
    except (ValueError, KeyError, TypeError):
        is_text = error.headers.get_content_type() == "text/plain"
        return said.strip() if said.strip() and is_text else str(error)
