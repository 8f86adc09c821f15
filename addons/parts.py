"""Creates the parts that answer requests, and connects them. `addons.assembly` decides when."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from ipaddress import ip_address
from typing import NamedTuple

from addons.filters.builtin.topology import Order
from addons.filters.chain import build_filters
from addons.filters.filter import Filter
from addons.filters.inputs import HubAddress
from addons.inputs.filter_chain import chain_of
from addons.inputs.filter_inputs import FilterInputs
from addons.inputs.input_sources import InputKind, one_config_map
from addons.link.cloud_access import CloudAccess
from addons.link.health import Cloud
from addons.offline.offline_mode import Offline
from addons.offline.offline_tables import OfflineTables
from addons.offline.writes.offline_leases import OfflineLeases
from addons.pool.pool import Pool
from addons.requests.answers import Answerer
from addons.requests.route_decision import RouteKind
from addons.router import RouterParts
from addons.rules.events import ProblemEvents
from addons.rules.filter_modules import FilterModules
from addons.rules.filtering import Filtering
from addons.rules.in_force import RulesInForce
from addons.rules.issued_versions import IssuedVersions
from addons.rules.table import OFF_IN_CLOUD_MODE
from addons.server.filtered_get import FilteredGets
from addons.settings import Settings
from addons.views.reviews import Reviews
from addons.views.serving import Serving
from addons.views.source import NotedOf, Source
from addons.views.sources import CloudReads, Sources
from kube.reflector.list_watch import ListWatch
from kube.store.projection import InputKey


class Parts(NamedTuple):
    """The parts that answer requests."""

    rules: RulesInForce
    events: ProblemEvents
    inputs: FilterInputs
    sources: Sources
    serving: Serving
    offline: Offline | None
    """None in a hub without a cache."""

    @property
    def answerers(self) -> dict[RouteKind, Answerer]:
        served: dict[RouteKind, Answerer] = {RouteKind.VIEW: self.serving}
        return served | (self.offline.answerers if self.offline is not None else {})


def make_parts(
    settings: Settings,
    cloud: CloudAccess,
    tables: OfflineTables | None,
    filters: tuple[Filter, ...],
    noted: NotedOf = lambda *_: None,
) -> Parts:
    """Create all parts.

    `tables` is None for a hub without a cache. `filters` are all that rules can bind, those of plugins too. `noted` is
    that of `Sources`.
    """
    clients, is_edge = cloud.clients, tables is not None
    events = ProblemEvents(clients.hub, (settings.namespace, settings.configmap), settings.node)
    rules = RulesInForce(filters, disabled_by(settings), events.report)

    # Views filter, filters read inputs, and inputs are sources: the one circle.
    def open_source(list_watch: ListWatch) -> Source:
        return sources.get_own(list_watch)

    def changed(keys: Collection[InputKey]) -> None:
        sources.inputs_changed(keys)

    inputs = FilterInputs(settings.node, settings.pool, hub_address(settings), open_source, changed)
    given = tables.issued_versions() if tables is not None else IssuedVersions(is_new=False)
    sources = Sources(
        CloudReads(clients.of, lambda: cloud.servers.is_up, lambda: cloud.servers.up_since)
        if is_edge
        else CloudReads(clients.of),
        Filtering(partial(chain_of, inputs), rules.current, given),
        settings.idle,
        tables.copies if tables is not None else None,
        noted,
        tables.running if tables is not None else None,
    )
    if settings.mode == "edge":
        inputs.input(InputKind.OWN_NODE)  # whether it is there at all
    configmap = sources.permanent(one_config_map(settings.namespace, settings.configmap))
    rules.listen(sources.rules_changed)
    rules.follow(configmap.store, configmap.why_empty)
    known = tables.known_callers if tables is not None else None
    reviews = Reviews(clients.of_token, settings.review_max_age, known)
    confirm = cloud.confirm if is_edge else _never_offline
    serving = Serving(sources, reviews, rules.current, settings.wait, confirm)
    offline = None
    if tables is not None:
        rules.listen(partial(_name_leases, rules, tables.leases))
        offline = Offline(tables, settings, cloud, reviews, sources, inputs)
    return Parts(rules, events, inputs, sources, serving, offline)


def router_parts(
    settings: Settings, parts: Parts, pool: Pool | None, waits_for: Callable[[], str]
) -> RouterParts:
    """Return the router's dependencies; `waits_for` is that of `RouterParts`."""
    answerers, offline = parts.answerers, parts.offline
    if pool is not None:
        answerers[RouteKind.PEER] = pool.port.serving
    return RouterParts(
        *(
            answerers,
            FilteredGets(parts.rules, parts.inputs, settings.wait),
            parts.sources.filtering.issued_under_other_rules,
        ),
        cached_relay=offline.cached_relay if offline is not None else None,
        peer_headers=pool.headers if pool is not None else dict,
        waits_for=waits_for,
    )


def _name_leases(rules: RulesInForce, leases: OfflineLeases) -> None:
    leases.named = rules.current().leases


async def _never_offline() -> bool:
    """Return True: a hub without a cache cannot answer from one while the cloud is away."""
    return True


def hub_address(settings: Settings) -> HubAddress:
    """Return the addresses at which pods reach the hub."""
    return HubAddress(settings.pod_addresses, settings.tls_port)


def certified_addresses(settings: Settings) -> list[str]:
    """Return the addresses for pods that the cluster is asked to sign: those that pods with a network of their own can
    reach."""
    return [address for address in settings.pod_addresses if not ip_address(address).is_loopback]


def served_addresses(settings: Settings) -> set[str]:
    """Return the addresses at which clients call the TLS port."""
    return {"127.0.0.1", "::1", settings.listen, *settings.pod_addresses}


def filters_of(settings: Settings) -> tuple[Filter, ...]:
    """Return the built-in filters with the settings' options."""
    order = Order(settings.topology_order)
    return build_filters(order, settings.local_endpoint, health=bool(settings.local_health))


def filter_modules(settings: Settings) -> FilterModules:
    """Load all filters, including plugins, whose code runs.

    ValueError if that code fails, or if an option disables an unknown filter.
    """
    made = FilterModules(filters_of(settings), settings.filter_modules)
    known = {filter_.name for filter_ in (*made.filters, *build_filters(health=True))}
    for name in sorted(settings.disabled_filters - known):
        raise ValueError(f"hub_disabled_filters: there is no filter {name!r} in hub_filter_module either")
    return made


def disabled_by(settings: Settings) -> frozenset[str]:
    """Return the names of the filters that the settings disable."""
    return settings.disabled_filters | (OFF_IN_CLOUD_MODE if settings.mode == "cloud" else frozenset())


async def end_delays(cloud: Cloud, sources: Sources) -> None:
    """End the retry delays of sources each time the cloud is back, until cancelled."""
    while True:
        await cloud.changed.wait()
        if cloud.is_up:
            sources.cloud_recovered()
