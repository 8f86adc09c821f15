"""Makes the node's copy as new as the cloud for a list without resourceVersion, without reading the objects again.

A list of one object returns the cloud's current version. The copy of a quiet resource reaches that version only by a
bookmark, about once a minute, so the hub asks for later writes (`kube.reflector.progress`), or for the names and
versions of the objects that the client wants, if these are few: the copy is new enough when it has each of them. If no
event can bring the copy to the version, it is of another history (`kube.reflector.history_verifier`), and the source
lists again.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial

from addons.requests.object_read import ObjectRead
from addons.views.source import Source
from kube.errors import StatusError, timeout, unavailable
from kube.http.client import Client, Unreachable
from kube.reflector.history_verifier import FEW_OBJECTS, Comparison, HistoryDiverged, compare
from kube.reflector.list_pages import Malformed, names_of
from kube.reflector.progress import NoBookmark, newest_event
from kube.store.history import LastSeenEvent, Standing
from kube.store.scope import Scope
from kube.store.store import Key
from kube.wire.codec import Codec, codec_for
from kube.wire.encoding import Encoding

ACCEPT = ",".join(
    f"{encoding};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    for encoding in (Encoding.PROTOBUF, Encoding.JSON)
)
NO_PROOF = (NoBookmark, HistoryDiverged, Unreachable, StatusError, ValueError, Malformed, TimeoutError)
"""Errors of a cloud that does not report its writes since a version, or that has another history."""
ATTEMPTS = 3
"""The most attempts for one answer. A leader that cannot reach a restored cloud still serves the previous history, and
each list of it is disproved again."""


async def wait_until_current(
    source: Source, client: Client, read: ObjectRead, scope: Scope, wait: float, at: int = 0
) -> int:
    """Wait until the source shows the cloud's current state, and return the cloud's version of it.

    `at`: the cloud's state at this version is sufficient, if the cloud still has it.

    StatusError: the cloud's own answer to the list, 503 without an answer, 504 if the copy does not reach the version.
    """
    if not at and sum(map(scope.matches, source.store)) > FEW_OBJECTS:
        with contextlib.suppress(*NO_PROOF):
            async with asyncio.timeout(wait):
                return await _by_events(source, client)
    end = None
    for _ in range(ATTEMPTS):
        given = source.store.newest_given
        version, expected = await _ask(client, read, wait, at)
        given = 0 if version == at else given
        end = end or asyncio.get_running_loop().time() + wait
        try:
            async with asyncio.timeout_at(end):
                while (
                    comparison := compare(source.store, expected, version, given, scope.matches)
                ) is Comparison.BEHIND:
                    await source.store.next_update()
                if comparison is Comparison.SAME:
                    return version
                source.reflector.disprove()
                await source.store.next_update()
        except TimeoutError:
            break
    raise timeout("the node's copy did not catch up with the cloud")


async def _by_events(source: Source, client: Client) -> int:
    """Do as `wait_until_current`, by a watch for the cloud's later writes. On any error of NO_PROOF the caller compares
    names instead."""
    reflector, store = source.reflector, source.store
    given, known, last_event = store.newest_given, store.version, store.last_event
    if reflector.is_proven:
        last_event = None
    elif last_event is None:
        last_event = await _newest_of_list(source, client)
    version = await reflector.current_version()
    if version < given:
        raise HistoryDiverged(f"the cloud is at version {version}, and was at {given}")
    if last_event is None and not reflector.is_proven:
        raise NoBookmark
    if last_event is None and store.version >= version:
        return version
    version, newest = await newest_event(client, source.list_watch, known, version, last_event)
    while store.version < newest:
        await store.next_update()
    return version


async def _newest_of_list(source: Source, client: Client) -> LastSeenEvent:
    """Return the newest object of a list without later events, if the cloud has as many objects at the store's version.

    With them it has the history of the list (`HistoryVerifier.expect_count`). Errors are those of `_by_events`.
    """
    store = source.store
    count, newest = len(store), max(store, key=lambda item: item.version)
    if store.standing is Standing.DOUBTED:
        raise NoBookmark
    if await source.reflector.questions.count_at(client.request, store.version) != count:
        raise NoBookmark
    return LastSeenEvent(newest.key, newest.version)


async def _ask(client: Client, read: ObjectRead, wait: float, at: int) -> tuple[int, dict[Key, int]]:
    """Request the names and versions that the cloud has; `at` and the errors are those of `wait_until_current`."""
    options = {"labelSelector": read.labels.canonical, "fieldSelector": read.fields.canonical}
    if at:
        options |= {"resourceVersion": str(at), "resourceVersionMatch": "Exact"}
    query = {name: text for name, text in options.items() if text}
    path = read.type.path(read.namespace)
    try:
        answer = await client.request("GET", path, query=query, accept=ACCEPT, timeout=wait)
        return await answer.decoded(partial(_read, codec_for(Encoding(answer.content_type))))
    except StatusError as error:
        if not at or error.code not in (400, 410, 504):
            raise
        return await _ask(client, read, wait, 0)
    except (Unreachable, ValueError) as error:
        raise unavailable(f"the cloud's current state cannot be read: {error}", retry_after=1) from error


def _read(codec: Codec, body: bytes) -> tuple[int, dict[Key, int]]:
    """Parse the version of a list, and the versions of its objects."""
    page = codec.decode_list(body)
    return page.version, names_of(codec, page.items)
