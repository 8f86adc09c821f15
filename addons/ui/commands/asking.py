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
"""Seconds for an answer. The hub makes one long report after the other, from memory."""
JSON = "application/json"


class NoAnswer(Exception):
    """The hub cannot be asked, or refused."""


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
    """The hub's answer to a GET, or to a POST of a `body` of some `kind`, to be read as it comes.

    A page is one of /debug/, or a path of its own that begins with a slash.
    NoAnswer where the hub cannot be asked, refuses, or breaks off.
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
    # The admin port is on this node: a proxy that the environment names does not reach it.
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
        raise  # the caller's own output: urllib wraps those of the connection
    except (URLError, HTTPException, TimeoutError, ConnectionError) as error:
        why = error.reason if isinstance(error, URLError) else error
        if isinstance(why, ConnectionRefusedError):
            why = "nothing listens there: does a hub run here? --admin names another port of it"
        elif isinstance(why, OSError):
            why = why.strerror or why
        raise NoAnswer(f"the hub at {admin} does not answer: {why}") from None


def new_file(path: str) -> BinaryIO:
    """A new file, which this user alone may read; OSError where there is one already, or none can be."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def write_new(path: str, content: bytes) -> str:
    """Write a new file as `new_file` makes it, and return a line about it; NoAnswer where that fails."""
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
