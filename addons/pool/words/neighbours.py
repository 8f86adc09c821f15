"""Hears what the kubelets of the other nodes of the pool say of their pods, from their hubs, while the cloud is away.

It begins when the hub has lost its cloud. It ends, with the cloud back, for each node when its last word has ended: a
site with a cloud sends nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable

from addons.filters.inputs import PodWord
from addons.inputs.filter_inputs import FilterInputs
from addons.inputs.words import FRESH
from addons.link.health import Cloud, ServerHealth
from addons.link.probes import ask
from addons.link.servers import Server
from addons.link.timeouts import TimeoutEstimator
from addons.pool.words.neighbour_words import NeighbourWords
from addons.pool.words.word_objects import MAX_WORD_BYTES, WORDS
from addons.requests.route_decision import PEER_PROBE_PATH
from kube.bounds import reached
from kube.concurrency.backoff import Backoff
from kube.concurrency.notifier import Notifier, comes_within, first_of
from kube.http.client import Client, Unreachable
from kube.peers import LeaderHub
from kube.reflector.list_watch import ListWatch
from kube.reflector.reflector import Reflector
from kube.reflector.state import State
from kube.store.store import Store
from kube.wire.encoding import Encoding

PROBE_INTERVAL = 4.0
"""Seconds between probes of a hub that is heard: one that was cut off without a word is asked anew."""
PROBE_TIMEOUT = 2.0
"""Seconds without a word of a hub that was probed, after which its connections are closed."""
LAST_RETRY = 3.0
"""Seconds, and up to twice as many, until a hub that is gone is asked again: it is on this node's own network."""
LOOK = 5.0
"""Seconds between looks who is heard, while anybody is to be."""

logger = logging.getLogger(__name__)


class Neighbour:
    """Another node whose hub this one asks, until `close`."""

    def __init__(self, words: NeighbourWords, health: ServerHealth, client: Client) -> None:
        self.words = words
        self.health = health
        self.silent_since: float | None = None
        """Since when nobody hears the node, by the caller's clock; None while it is heard."""
        self.client = client.at(str(health.server))
        wanted, backoff = ListWatch(WORDS, encoding=Encoding.JSON), Backoff(last=LAST_RETRY)
        self.reflector = Reflector(self.client, wanted, words.store, backoff)
        self.reflector.grew = self._check_list
        words.flooded = self._leave
        self.reading = asyncio.create_task(self.reflector.run(), name=f"words of {health.server}")

    @property
    def is_heard(self) -> bool:
        return self.reflector.state is State.WATCHING and not self.reading.done()

    def close(self) -> None:
        self.reading.cancel()
        self.words.close()

    def _check_list(self) -> None:
        if self.reflector.list_bytes > MAX_WORD_BYTES:
            reached("words of another node")
            self._leave()

    def _leave(self) -> None:
        """Hear no more of a node that tells more than it may. What it said stays, as of a silent one."""
        logger.warning(
            "node %s reports on too many pods: its further reports are ignored", self.health.server.node
        )
        self.reading.cancel()


class Neighbours:
    """The other nodes of the pool. Starts with `run`."""

    def __init__(
        self,
        port: int,
        client: Client,
        inputs: FilterInputs,
        stores: Callable[[], Iterable[Store]],
        cloud: Cloud,
        cut: Callable[[Server], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`port` is the peer port of all hubs of a pool. `client` sends with the hub's identity. `stores` gives the
        slices and Endpoints that somebody on this node reads. `cut` closes the connections to a server. `clock` is
        monotonic."""
        self.peers: dict[str, ServerHealth] = {}
        """The servers that the hub may ask besides the cloud's and the pool's leaders, by their URLs."""
        self._port = port
        self._client = client
        self._inputs = inputs
        self._stores = stores
        self._cloud = cloud
        self._cut = cut
        self._clock = clock
        self._hubs: dict[str, LeaderHub] = {}
        self._changed = Notifier()
        self._open: dict[str, Neighbour] = {}
        self._settled = float("-inf")
        """When words were last ended that the cloud's slices show, by `clock`."""
        inputs.refused = self._refuse

    def update(self, hubs: Iterable[LeaderHub]) -> None:
        """Take the hubs of the pool's other nodes. Of those at one address the first counts."""
        at_address = {hub.address: hub for hub in reversed(list(hubs))}
        self._hubs = {hub.node: hub for hub in at_address.values()}
        self._changed.notify()

    def describe(self) -> list[dict[str, object]]:
        """For the debug page."""
        return [
            {"node": node, "heard": exchange.is_heard, "words": sum(1 for _ in exchange.words)}
            for node, exchange in sorted(self._open.items())
        ]

    async def run(self) -> None:
        """Hear them until cancelled."""
        probing = asyncio.create_task(self._probe_all(), name="probes of neighbours")
        try:
            while True:
                woken = (self._changed.wait(), self._cloud.changed.wait())
                self._look()
                await comes_within(LOOK if self._open else None, first_of(*woken))
        finally:
            probing.cancel()
            for node in list(self._open):
                self._close(node)

    def _look(self) -> None:
        is_up, now = self._cloud.is_up, self._clock()
        settles = now - self._settled >= FRESH
        self._settled = now if settles else self._settled
        for node, exchange in list(self._open.items()):
            is_named = exchange.health.server == self._server(node)
            if exchange.is_heard and is_named:
                exchange.silent_since = None
            elif not is_up or exchange.silent_since is None:
                exchange.silent_since = now
            elif now - exchange.silent_since >= FRESH:
                exchange.words.give_up() if node in self._hubs else exchange.words.forget()
            if settles:
                exchange.words.settle(self._stores())
            if is_up and not any(True for _ in exchange.words):
                self._close(node)
        for node in () if is_up else self._hubs.keys() - self._open:
            server = self._server(node)
            if server is None or str(server) in self.peers:
                continue  # another node was there until now
            self._begin(node, ServerHealth(server, TimeoutEstimator(PROBE_INTERVAL, PROBE_TIMEOUT)))

    def _server(self, node: str) -> Server | None:
        hub = self._hubs.get(node)
        return Server("https", hub.address, self._port, node) if hub is not None else None

    def _begin(self, node: str, health: ServerHealth) -> None:
        self.peers[str(health.server)] = health
        words = NeighbourWords(node, self._inputs.changed, self._inputs.ask, self._newest, self._clock)
        self._open[node], self._inputs.others[node] = Neighbour(words, health, self._client), words

    def _close(self, node: str) -> None:
        exchange = self._open.pop(node)
        exchange.close()
        del self._inputs.others[node], self.peers[str(exchange.health.server)]

    def _newest(self) -> int:
        return max((store.version for store in self._stores()), default=0)

    def _refuse(self, namespace: str, word: PodWord) -> None:
        if (exchange := self._open.get(word.node)) is not None:
            exchange.words.refuse(namespace, word)

    async def _probe_all(self) -> None:
        while True:
            await asyncio.sleep(PROBE_INTERVAL)
            heard = [exchange for exchange in self._open.values() if exchange.is_heard]
            await asyncio.gather(*map(self._probe, heard))

    async def _probe(self, neighbour: Neighbour) -> None:
        try:
            await ask(neighbour.client, neighbour.health, PEER_PROBE_PATH, (), self._clock)
            neighbour.health.succeeded()
        except Unreachable as error:
            logger.info("no pod reports from node %s: %s", neighbour.health.server.node, error)
            self._cut(neighbour.health.server)
