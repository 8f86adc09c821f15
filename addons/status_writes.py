"""Kubelet's reports on its node and pods while the cloud is gone: merged into the node's copies, and journaled."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from aiohttp import web

from addons.answers import Answers, answer_name
from addons.asked import HEADERS, Asked
from addons.journal import Journal, StatusEntry
from addons.kept_objects import KeptObjects
from kube.client import Client, Unreachable
from kube.codec import Codec
from kube.objects import decode_object
from kube.request import parse_request
from kube.status import StatusError, not_acceptable, unavailable
from kube.status_update import status_document, updated
from kube.store import Item, Store

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Held:
    """One copy of an object: in a store, or (without one) as a single answer that passed."""

    codec: Codec
    api_version: str
    kind: str
    raw: bytes
    store: Store | None = None

    def written(self, asked: Asked) -> Held:
        """What a write makes of it; StatusError where kube-apiserver would refuse."""
        raw = updated(
            *(self.codec.encoding, self.api_version, self.kind, self.raw),
            *(asked.info.method, asked.content_type, asked.body),
        )
        return Held(self.codec, self.api_version, self.kind, raw, self.store)

    def entry(self, path: str, after: Held) -> StatusEntry:
        form = (self.codec.encoding, self.api_version, self.kind)
        uid = decode_object(*form, after.raw).uid
        return StatusEntry(
            path, self.kind, uid, status_document(*form, self.raw), status_document(*form, after.raw)
        )


class StatusWrites:
    """Applies status writes to every copy of an object that the node has, whatever its encoding."""

    def __init__(self, objects: KeptObjects, answers: Answers, journal: Journal, client: Client) -> None:
        """`client` asks the cloud what an object really is, when it has refused what the node made of it."""
        self._objects = objects
        self._answers = answers
        self._journal = journal
        self._client = client
        self._turn = asyncio.Lock()
        """Each write is made of what the one before it left."""

    async def take(self, asked: Asked) -> web.Response:
        """The answer to a PATCH or PUT of a status; StatusError 503 where the node does not have the object."""
        path = asked.object_path
        async with self._turn:
            found = await self._found(asked)
            if not found:
                raise unavailable(f"the cloud cannot be reached, and the node has no copy of {path}")
            made = [held.written(asked) for held in found]
            encodings = asked.encodings()
            acceptable = [each for each in made if each.codec.encoding in encodings]
            if not acceptable:
                raise not_acceptable(f"the node has {path} in another encoding only")
            for each in made:
                self._show(each, asked)
            entry = self._journal.put_status(found[0].entry(path, made[0]))
        await self._journal.written(entry)
        answer = min(acceptable, key=lambda each: encodings.index(each.codec.encoding))
        body = answer.codec.encode_single(answer.api_version, answer.kind, answer.raw)
        return web.Response(body=body, headers={**HEADERS, "Content-Type": answer.codec.content_type})

    async def refused(self, entry: StatusEntry) -> None:
        """The cloud does not take a status: show again what it has."""
        for item in await self._objects.find("", parse_request("GET", entry.path)):
            codec = item.store.codec
            try:
                answer = await self._client.request("GET", entry.path, accept=codec.encoding)
                if answer.content_type == codec.encoding:
                    item.store.amend(codec.decode_single(answer.body)[2])
            except (StatusError, Unreachable, ValueError) as error:
                logger.warning("%s stays as the node had it: %s", entry.path, error)

    async def _found(self, asked: Asked) -> list[Held]:
        items = await self._objects.find("", asked.info)
        if items:
            return [_held(item) for item in items]
        kept = await self._answers.get(_name(asked))
        if kept is None:
            return []
        try:
            held = Held(*kept.single())
            status_document(held.codec.encoding, held.api_version, held.kind, held.raw)
        except (ValueError, LookupError):
            return []  # a Table, say, or only its metadata
        return [held]

    def _show(self, held: Held, asked: Asked) -> None:
        """From now on this is the object, for whoever watches or gets it."""
        if held.store is not None:
            held.store.amend(held.raw)
        else:
            body = held.codec.encode_single(held.api_version, held.kind, held.raw)
            self._answers.keep(_name(asked), {"content-type": held.codec.content_type}, body)


def _held(item: Item) -> Held:
    return Held(item.store.codec, item.store.api_version, item.store.kind, item.raw, item.store)


def _name(asked: Asked) -> str:
    """Of the answer to a GET of the object by the same client."""
    return answer_name("", asked.object_path, asked.accept or "", asked.accept_encoding)
