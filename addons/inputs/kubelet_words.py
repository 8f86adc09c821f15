"""What kubelet said of this node's pods while the cloud was away, until the cloud's own slices show it.

A word begins with a status that the hub took in the cloud's place. Once the cloud has that status, the word has the
pod's version there, and follows what the cloud says of the pod. It ends when no slice is left that does not show it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from addons.filters.builtin.localpods import LocalPods
from addons.filters.inputs import Inputs, PodWord
from addons.filters.verdict import Outcome
from addons.inputs.input_sources import InputKind
from kube.concurrency.pulse import Pulse
from kube.json_type import Json
from kube.objects.status_update import status_document
from kube.requests.request_info import parse_request
from kube.store.projection import InputKey
from kube.store.store import Change, Item, Key, Store
from kube.wire.fields import Edits
from kube.wire.json_fields import JsonFields

FRESH = 30.0
"""Seconds from the cloud's word of a pod for which a slice of a later version may still be made without it: its
controller writes a slice for one pod before it has heard of the next, and many pods come back at once."""
ENDED = frozenset({"Succeeded", "Failed"})
"""The phases of a pod that is no endpoint any more."""


class KubeletWords:
    """The words of all pods of this node."""

    def __init__(
        self,
        changed: Callable[[Collection[InputKey]], None],
        ask: Callable[[], Inputs],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`changed` gets the keys of changed inputs; `ask` gives the inputs of one object."""
        self._changed = changed
        self._ask = ask
        self._clock = clock
        self._words: dict[str, dict[str, PodWord]] = {}
        """By namespace and pod."""
        self._fresh: dict[Key, float] = {}
        """When the cloud had its latest word of a pod, by `clock`."""
        self._came = Pulse()
        self._pods: Store | None = None

    def start(self, open_pods: Callable[[], Store]) -> None:
        """Take what opens the cloud's word of this node's pods, once kubelet has said something."""
        self._open_pods = open_pods

    def of(self, namespace: str) -> Mapping[str, PodWord]:
        """The words of a namespace, by pod."""
        return self._words.get(namespace, {})

    def heard(self, path: str, document: Json) -> None:
        """Take the metadata and status of a pod of this node as kubelet wants them, which the cloud has not."""
        key = _key(path)
        if key is None:
            return
        was = self._get(key)
        since = was.since if was is not None and not was.version else f"{datetime.now().astimezone():%H:%M}"
        self._put(key, _word(document, since))
        self._fresh.pop(key, None)
        if self._pods is None:
            self._pods = self._open_pods()
            self._pods.listen(self)
        self._came.notify()

    def ended(self, path: str, version: int) -> None:
        """Note that the cloud has the status of a pod, at this version of it; 0: it refused the status."""
        key = _key(path)
        word = self._get(key) if key is not None else None
        if key is None or word is None:
            return
        if not version:
            if not word.version:  # else the cloud has deleted the pod, and its slices may be late
                self._drop([key])
            return
        self._say(key, replace(word, version=version))
        item = self._pods.get(key) if self._pods is not None else None
        if item is not None:
            self.changed(Change(item.version, key, None, item))

    def changed(self, change: Change) -> None:
        """Take what the cloud says of a pod."""
        word, item = self._get(change.key), change.new
        if word is None or change.is_local:
            return
        document = status_of(item) if item is not None else {}
        if document is None:
            return
        said = _word(document, word.since)
        if item is None or said.uid != word.uid:
            if word.addresses or not word.version:
                self._say(change.key, replace(word, addresses=(), version=max(word.version, change.version)))
        elif not word.version:
            # The cloud has not heard kubelet: its own word are the labels, and that it deleted the pod.
            terminates = word.is_terminating or said.is_terminating
            self._put(change.key, replace(word, labels=said.labels, is_terminating=terminates))
        elif item.version >= word.version and said != replace(word, version=0, is_fresh=True):
            self._say(change.key, replace(said, version=item.version))

    def advanced(self) -> None:
        """No pod has changed."""

    def restarted(self) -> None:
        """The cloud was restored: the versions of pods mean nothing any more, nor do those of its slices."""
        self._drop(
            [
                (namespace, name)
                for namespace, words in self._words.items()
                for name, word in words.items()
                if word.version
            ]
        )

    async def run(self, stores: Callable[[], Iterable[Store]]) -> None:
        """End words until cancelled. `stores` gives the slices and Endpoints that somebody on this node reads."""
        while True:
            if not self._words:
                await self._came.wait()
            await asyncio.sleep(FRESH)
            self.settle(stores())

    def settle(self, stores: Iterable[Store]) -> None:
        """End what the cloud's slices show: the words of a namespace end together."""
        now = self._clock()
        for key in [key for key, at in self._fresh.items() if now - at >= FRESH]:
            del self._fresh[key]
            word = self._get(key)
            if word is not None:
                self._put(key, replace(word, is_fresh=False))
        over = {
            namespace: max(word.version for word in words.values())
            for namespace, words in self._words.items()
            if all(word.version and not word.is_fresh for word in words.values())
        }
        if over:
            late = {
                item.key[0]
                for store in stores
                for item in store
                if item.version < over.get(item.key[0], 0) and self._is_late(item)
            }
            self._drop(
                [(namespace, name) for namespace in over.keys() - late for name in self._words[namespace]]
            )

    def _is_late(self, item: Item) -> bool:
        try:
            return LocalPods().apply(item.decode(), self._ask()).outcome is Outcome.CHANGED
        except ValueError:
            return False  # nobody sees it

    def _get(self, key: Key) -> PodWord | None:
        return self.of(key[0]).get(key[1])

    def _say(self, key: Key, word: PodWord) -> None:
        """Put the cloud's own word."""
        self._fresh[key] = self._clock()
        self._put(key, replace(word, is_fresh=True))

    def _put(self, key: Key, word: PodWord) -> None:
        namespace, name = key
        was = self._get(key)
        self._words.setdefault(namespace, {})[name] = word
        touched: set[InputKey] = set()
        if was is None or was.labels != word.labels:
            touched.add((InputKind.WORD, namespace))
        if was != word:
            touched.add((InputKind.WORD, namespace, name))
        if touched:
            self._changed(touched)

    def _drop(self, keys: Iterable[Key]) -> None:
        touched: set[InputKey] = set()
        for namespace, name in keys:
            del self._words[namespace][name]
            self._fresh.pop((namespace, name), None)
            touched |= {(InputKind.WORD, namespace), (InputKind.WORD, namespace, name)}
            if not self._words[namespace]:
                del self._words[namespace]
        if touched:
            self._changed(touched)


def status_of(item: Item) -> Json | None:
    """The metadata and status of a pod; None where they cannot be read."""
    store = item.store
    try:
        return status_document(store.codec.encoding, store.api_version, "Pod", item.raw)
    except (ValueError, LookupError):
        return None


def _word(document: Json, since: str) -> PodWord:
    """What the metadata and status of a pod say of its endpoints, as Kubernetes' endpoint controllers read them."""
    pod = JsonFields(document, Edits())
    metadata, status = pod.child("metadata"), pod.child("status")
    addresses = [each.text("ip") for each in status.children("podIPs")] or [status.text("podIP")]
    if status.text("phase") in ENDED:
        addresses = []
    conditions = {each.text("type"): each.text("status") for each in status.children("conditions")}
    return PodWord(
        metadata.text("name"),
        metadata.text("uid"),
        metadata.mapping("labels"),
        tuple(filter(None, addresses)),
        conditions.get("Ready") == "True",
        metadata.has("deletionTimestamp"),
        since,
    )


def _key(path: str) -> Key | None:
    """The namespace and name of a pod by its path; None for another object."""
    info = parse_request("GET", path)
    if info.type is None or (info.type.group, info.type.resource) != ("", "pods"):
        return None
    return info.namespace, info.name
