"""Bounds the sources and views of each identity, and the bytes of all tokens' sources together.

Each list-watch that a client requests is a source, and each selector a view, so clients with tokens could exhaust the
hub's memory. Beyond a quota the hub relays the client's request and stores nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from addons.views.open_view import ViewKey
from addons.views.source import Source

MAX_SOURCES = 64
"""Sources of one user with a token: a controller in a pod reads some ten to twenty kinds."""
MAX_VIEWS = 64
"""Views that one user with a token has opened."""
MAX_HUB_SOURCES = 4096
"""Sources of the node: kubelet has one for each Secret and ConfigMap that a pod mounts."""
MAX_HUB_VIEWS = 4096
"""Views that the node's components have opened."""
MAX_FILLING = 4
"""Sources of one user with a token that wait for their first list, whose size is unknown."""
FIRST_LISTS = "first lists"
"""The name of that quota."""
MAX_HELD = 64 * 1024 * 1024
"""Bytes of objects in all sources of users with tokens, as received, including lists in progress."""
MAX_HUB_BYTES = 64 * 1024 * 1024
"""Bytes of objects in the node's sources with a namespace or selector, which any process of the node can request.
kubelet's own are its pods, and the Secrets and ConfigMaps that they mount."""
MAX_HUB_IDLE = 128
"""Partial sources of the node without a client: each list under a new selector leaves two tasks, a watch of the cloud
and some 40 KB, however few objects it found."""
MAX_HISTORIES = 32 * 1024 * 1024
"""Bytes of the change logs of all sources of users with tokens."""
MAX_HUB_HISTORIES = 128 * 1024 * 1024
"""Bytes of the change logs of the node's sources."""
MAX_COPIES = 16
"""Sources of one user with a token that are stored on disk."""
MAX_COPY_BYTES = 4 * 1024 * 1024
"""Bytes of such a source when it is first stored."""


class BeyondQuota(Exception):
    """An identity has reached a quota; `what` names the quota, as a metric's label."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.retry_after = 1 if what == FIRST_LISTS else 60
        """Seconds until another request may succeed: a first list ends soon, other things are in use."""


def check_new_source(sources: Iterable[Source], user: str) -> None:
    """Raise BeyondQuota if a user may have no further source. The user "" is the hub."""
    own = [source for source in sources if source.user == user]
    if len(own) >= (MAX_SOURCES if user else MAX_HUB_SOURCES):
        raise BeyondQuota("sources")
    if user and len(listing(own)) >= MAX_FILLING:
        raise BeyondQuota(FIRST_LISTS)


def listing(own: Iterable[Source]) -> list[Source]:
    """Return a user's sources that wait for their first list."""
    return [source for source in own if not source.store.complete]


def check_new_view(sources: Iterable[Source], source: Source, key: ViewKey, user: str) -> None:
    """Raise BeyondQuota if a user may open no further view."""
    if source.has_view(key):
        return
    opened = sum(view.user == user for source in sources for view in source.views.values())
    if opened >= (MAX_VIEWS if user else MAX_HUB_VIEWS):
        raise BeyondQuota("views")


def too_large(sources: Iterable[Source]) -> Iterator[Source]:
    """Return the sources of tokens to close, the largest first, so that the others have at most MAX_HELD bytes."""
    sized = sorted(((size_of(source), source) for source in sources if source.user), key=lambda pair: pair[0])
    total = sum(size for size, _ in sized)
    while total > MAX_HELD:
        size, source = sized.pop()
        total -= size
        yield source


def outgrown(sources: Iterable[Source]) -> Iterator[Source]:
    """Return the node's partial sources to close after events have raised their total above MAX_HUB_BYTES.

    Sources without a client come first, the least recently used before the others; then those that have grown most
    since their first list.
    """
    parts = _parts(sources)
    total = sum(map(size_of, parts))
    idle = sorted((part for part in parts if not part.users), key=lambda part: part.used)
    used = sorted((part for part in parts if part.users), key=lambda part: part.first_size - size_of(part))
    for source in (*idle, *used):
        if total <= MAX_HUB_BYTES:
            return
        total -= size_of(source)
        yield source


def least_used(sources: Iterable[Source], fresh: Source) -> Iterator[Source]:
    """Return the node's partial sources to close before the first list of a new one, so that all have at most
    MAX_HUB_BYTES, and at most MAX_HUB_IDLE of them are without a client.

    The least recently used comes first, and the new source last. Other sources with clients stay.
    """
    parts = _parts(sources)
    total = sum(map(size_of, parts))
    idle = sorted(
        (part for part in parts if not part.users and part is not fresh), key=lambda part: part.used
    )
    left = len(idle)
    for source in (*idle, *(part for part in parts if part is fresh)):
        if total <= MAX_HUB_BYTES and left <= MAX_HUB_IDLE:
            return
        left -= 1
        total -= size_of(source)
        yield source


def _parts(sources: Iterable[Source]) -> list[Source]:
    """Return the node's partial sources (those with a namespace or a selector), without the hub's own."""
    return [
        source
        for source in sources
        if not source.user and not source.is_own and not source.list_watch.is_unfiltered
    ]


def size_of(source: Source) -> int:
    """Return the bytes of a source's objects, as received, including a list in progress."""
    return source.store.size + source.reflector.list_bytes
