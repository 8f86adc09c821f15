"""Makes an answer from the node's copy as new as the cloud is now, without fetching the objects again.

A list without resourceVersion promises that. A quiet resource has no event that would tell its watch how far the
cluster has come (bookmarks come about once a minute), so the hub asks for the names and versions of what the client
wants: a metadata list, a tenth of the objects. The copy is new enough when it holds each of them. Where no event can
bring it there, the copy is of another history (`kube.reflector.continuity`), and is listed anew.
"""

from __future__ import annotations

import asyncio
from functools import partial

from addons.requests.object_read import ObjectRead
from addons.views.source import Source
from kube.errors import StatusError, timeout, unavailable
from kube.http.client import Client, Unreachable
from kube.reflector.continuity import Comparison, compare
from kube.reflector.list_pages import names_of
from kube.store.scope import Scope
from kube.store.store import Key
from kube.wire.codec import Codec, codec_for
from kube.wire.encoding import Encoding

ACCEPT = ",".join(
    f"{encoding};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    for encoding in (Encoding.PROTOBUF, Encoding.JSON)
)
ATTEMPTS = 3
"""Times that the cloud is asked for one answer. A leader of the pool that cannot reach a restored cloud goes on with
its former history, and each list of it is disproved again."""


async def wait_until_current(
    source: Source, client: Client, read: ObjectRead, scope: Scope, wait: float, at: int = 0
) -> int:
    """Wait until the source shows what the cloud has now, and return the cloud's version of that.

    `at`: what the cloud had at this version will do, where it still knows that.

    StatusError: the cloud's own answer to the list, 503 when it gives none, 504 when the copy does not get there.
    """
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


async def _ask(client: Client, read: ObjectRead, wait: float, at: int) -> tuple[int, dict[Key, int]]:
    """The names and versions that the cloud has; `at` and errors as `wait_until_current`."""
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
        raise unavailable(f"the cloud's current state cannot be learned: {error}", retry_after=1) from error


def _read(codec: Codec, body: bytes) -> tuple[int, dict[Key, int]]:
    """The version of a list, and those of its objects."""
    page = codec.decode_list(body)
    return page.version, names_of(codec, page.items)
