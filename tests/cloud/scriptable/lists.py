"""The response to a list: its version, its objects, and its page."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass

from kube.errors import bad_request, expired, too_large_version
from kube.requests.request_info import ListOptions, validate_list_options
from kube.requests.resource_versions import parse_version
from tests.cloud.scriptable.selection import Selection
from tests.cloud.scriptable.storage import Compacted, Key, Storage, Stored

TOKEN_VERSION = "meta.k8s.io/v1"
"""The format version in a continue token."""
TOO_OLD = "The resourceVersion for the provided list is too old."
CONTINUE_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter."
)


@dataclass(frozen=True, slots=True)
class Page:
    """A list, or a part of one; `version` is the list's."""

    version: int
    items: list[Stored]
    continue_token: str = ""
    remaining: int | None = None


def read_list(storage: Storage, selection: Selection, options: ListOptions) -> Page:
    """Return the page that the options request. StatusError 400, 410, 422 and 504 like kube-apiserver."""
    validate_list_options(options)
    limit = max(options.limit, 0)
    version, after = storage.version, None
    if options.continue_token:
        version, after = _parse_token(options.continue_token)
        if options.resource_version not in {"", "0"}:
            raise bad_request("specifying resource version is not allowed when using continue")
    asked = parse_version(options.resource_version)
    check_reached(storage, max(asked, version))
    if options.resource_version_match == "Exact" or (asked and limit and not options.resource_version_match):
        version = asked
    elif options.resource_version and not asked:
        limit = 0
    objects = _objects_at(storage, selection, version, CONTINUE_TOO_OLD if after else TOO_OLD)
    chosen = sorted((key for key, stored in objects.items() if selection.matches(stored.value)), key=_order)
    rest = [key for key in chosen if after is None or _order(key) > after]
    page = rest[:limit] if limit else rest
    items = [objects[key] for key in page]
    if len(page) == len(rest):
        return Page(version, items)
    # A real server returns the remaining count only for lists without selectors.
    remaining = len(rest) - len(page) if selection.is_everything else None
    return Page(version, items, _make_token(version, page[-1]), remaining)


def check_reached(storage: Storage, version: int) -> None:
    """Raise StatusError 504 for a future version; a real server waits three seconds first."""
    if version > storage.version:
        raise too_large_version(version, storage.version)


def _objects_at(storage: Storage, selection: Selection, version: int, too_old: str) -> dict[Key, Stored]:
    collection = storage.collection(selection.resource.collection)
    if version == storage.version:
        return collection.objects
    try:
        return collection.at(version)
    except Compacted as error:
        raise expired(too_old) from error


def _order(key: Key) -> str:
    """Sort like etcd's keys."""
    return f"{key[0]}/{key[1]}"


def _make_token(version: int, last: Key) -> str:
    """Return a continue token in a real server's format. Clients must not parse it; tests of the format may."""
    token = json.dumps(
        {"v": TOKEN_VERSION, "rv": version, "start": _order(last) + "\0"}, separators=(",", ":")
    )
    return base64.urlsafe_b64encode(token.encode()).rstrip(b"=").decode()


def _parse_token(text: str) -> tuple[int, str]:
    """Return the version and the key to continue after; StatusError 400 for a token not of `_make_token`."""
    try:
        token = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        if token["v"] != TOKEN_VERSION:
            raise ValueError(f"unknown format {token['v']!r}")
        return int(token["rv"]), str(token["start"]).removesuffix("\0")
    except (ValueError, KeyError, TypeError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from error
