"""Facts about this node's pool: its name, its ConfigMap, its nodes, and the CAs of client certificates.

They come from the hub's own sources, so they are stored on disk, and an edit applies at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from cryptography import x509

from addons.inputs.filter_inputs import FilterInputs
from addons.inputs.input_sources import one_config_map
from addons.pool.pool_config import NO_POOL, PoolConfig, parse_pool_config, relay_config
from addons.views.source import Source
from kube.concurrency.notifier import Notifier, wait_for_any
from kube.reflector.list_watch import ListWatch
from kube.requests.request_info import ResourceType

CLIENT_CA = "extension-apiserver-authentication"
"""The ConfigMap in kube-system with the CAs whose client certificates kube-apiserver accepts."""
CLIENT_CA_KEY = "client-ca-file"
STATIC_LEADERS_DELAY = 2.5
"""Seconds from the start after which the leaders of `--leaders` are used. This is before
`addons.pool.leader_selector.ROLE_TIMEOUT`, so that shared sources do not read the cloud first."""


class OneConfigMap:
    """A ConfigMap that the hub watches by a source of its own."""

    def __init__(
        self, open_source: Callable[[ListWatch], Source], namespace: str, name: str, changed: Notifier
    ) -> None:
        self.name = name
        self._source = open_source(one_config_map(namespace, name))
        self._source.users += 1
        self._task = asyncio.create_task(self._follow(changed, self._moved()), name=f"ConfigMap {name}")

    @property
    def is_known(self) -> bool:
        """Whether the hub knows the ConfigMap's content, or that the cloud refuses to show it."""
        return self._source.store.complete or self._source.reflector.refusal is not None

    @property
    def data(self) -> Mapping[str, str] | None:
        """The ConfigMap's data; None if it does not exist or the cloud refuses to show it."""
        if self._source.reflector.refusal is not None:
            return None
        item = next(iter(self._source.store), None)
        return item.decode().fields.mapping("data") if item is not None else None

    def close(self) -> None:
        self._task.cancel()
        self._source.users -= 1

    def _moved(self) -> tuple[asyncio.Future[None], ...]:
        return self._source.store.next_update(), self._source.reflector.changed.wait()

    async def _follow(self, changed: Notifier, moved: tuple[asyncio.Future[None], ...]) -> None:
        while True:
            await wait_for_any(*moved)
            moved = self._moved()
            changed.notify()


class PoolFacts:
    """Watches the pool of this node, also when the node moves to another pool."""

    def __init__(
        self,
        inputs: FilterInputs,
        open_source: Callable[[ListWatch], Source],
        namespace: str,
        first: PoolConfig = NO_POOL,
        further: Callable[[], tuple[ResourceType, ...]] = tuple,
    ) -> None:
        """`first` applies until the hub has read the ConfigMap for the first time.

        `further` returns the resources that the rules add to the shared ones; when it changes, notify `moved`.
        """
        self.name = ""
        """The name of the pool; "" if the node is in no pool, or while the pool is unknown."""
        self.config = NO_POOL
        self.is_known = False
        """Whether the hub knows its pool and the content of the pool's ConfigMap."""
        self.members: frozenset[str] | None = None
        """The nodes of the pool; None while they are unknown, and if the pool shares nothing."""
        self.authorities: tuple[x509.Certificate, ...] = ()
        """The CAs of client certificates that kube-apiserver publishes; empty while they are unknown."""
        self._inputs = inputs
        self._open = open_source
        self._namespace = namespace
        self._first = first
        self._further = further
        self._may_begin = False
        """Whether STATIC_LEADERS_DELAY has passed, so that the leaders of `--leaders` may be used."""
        self.moved = Notifier()
        """Notified when the facts must be read again."""
        self._config: OneConfigMap | None = None
        self._client_ca: OneConfigMap | None = None
        self._client_ca_text = ""

    async def run(self, changed: Callable[[], None]) -> None:
        """Call `changed` whenever one of the facts has changed, until cancelled."""
        timer = asyncio.get_running_loop().call_later(STATIC_LEADERS_DELAY, self._begin)
        try:
            while True:
                woken = (self._inputs.learned.wait(), self.moved.wait())
                if self._refresh():
                    changed()
                await wait_for_any(*woken)
        finally:
            timer.cancel()

    def close(self) -> None:
        for reader in (self._config, self._client_ca):
            if reader is not None:
                reader.close()

    def _begin(self) -> None:
        self._may_begin = True
        self.moved.notify()

    def shares(self, type_: ResourceType) -> bool:
        """Whether the pool shares a resource now."""
        return self.config.shares(type_)

    def has(self, node: str) -> bool | None:
        """Whether a node, named by its verified certificate, belongs to the pool; None while the pool's nodes are
        unknown."""
        return node in self.members if self.members is not None else None

    def _refresh(self) -> bool:
        """Read all facts again; return whether one has changed."""
        was = (self.name, self.config, self.is_known, self.members, self.authorities)
        answer = self._inputs.ask()
        self.name = answer.own_pool()
        config = self._config_of(self.name)
        self.is_known = config.is_known if config is not None else answer.is_complete
        self.config = self._parsed(config)
        if self.config.is_shared:
            answer = self._inputs.ask()
            nodes = answer.pool_nodes(self.name)
            if answer.is_complete:
                self.members = frozenset(nodes or ())
            self._read_client_ca()
        else:
            self.members = None
        return was != (self.name, self.config, self.is_known, self.members, self.authorities)

    def _config_of(self, pool: str) -> OneConfigMap | None:
        name = f"leader-hub-{pool}"
        if self._config is not None and (not pool or self._config.name != name):
            self._config.close()
            self._config = None
        if pool and self._config is None:
            self._config = OneConfigMap(self._open, self._namespace, name, self.moved)
        return self._config

    def _parsed(self, config: OneConfigMap | None) -> PoolConfig:
        """Parse the ConfigMap, or return the configuration with the leaders of `--leaders` until it has been read."""
        if not self.is_known:
            return self._first if self._may_begin else NO_POOL
        self._first = NO_POOL
        return parse_pool_config(config.data, self._further()) if config is not None else NO_POOL

    def _read_client_ca(self) -> None:
        if self._client_ca is None:
            self._client_ca = OneConfigMap(self._open, "kube-system", CLIENT_CA, self.moved)
        text = (self._client_ca.data or {}).get(CLIENT_CA_KEY, "")
        if text == self._client_ca_text:
            return
        self._client_ca_text = text
        try:
            self.authorities = tuple(x509.load_pem_x509_certificates(text.encode())) if text else ()
        except ValueError:
            self.authorities = ()


class RelayFacts(PoolFacts):
    """The facts of a relay: it always leads, and every node is a member."""

    def __init__(
        self,
        inputs: FilterInputs,
        open_source: Callable[[ListWatch], Source],
        namespace: str,
        node: str,
        further: Callable[[], tuple[ResourceType, ...]] = tuple,
    ) -> None:
        super().__init__(inputs, open_source, namespace, further=further)
        self._node = node
        self.config = relay_config(node)
        self.members = frozenset()

    def has(self, _node: str) -> bool:
        return True

    def _refresh(self) -> bool:
        was = (self.config, self.is_known, self.authorities)
        self.config, self.is_known = relay_config(self._node, self._further()), True
        self._read_client_ca()
        return was != (self.config, self.is_known, self.authorities)
