"""Creates the components of `addons.pool` and connects them with the hub's other components."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from pathlib import Path

from cryptography import x509

from addons.certificates.requested_certificate import RequestedCertificate, serving_certificate_of
from addons.certificates.serving_certificate import ServingCertificate, StaticCertificate
from addons.inputs.filter_inputs import FilterInputs
from addons.inputs.input_sources import InputKind
from addons.inputs.pod_reports import endpoint_stores
from addons.link.link import PoolLink, UpstreamManager
from addons.pool.announcement import Announcement
from addons.pool.deputies import ANY_ADDRESS
from addons.pool.leader_selector import LeaderSelector
from addons.pool.peer_admission import Admission
from addons.pool.peer_reader import SharedSources
from addons.pool.peer_serving import PeerServing
from addons.pool.peer_tls import peer_connection
from addons.pool.peers.own_peer import OwnPeer
from addons.pool.peers.peer_probes import Peers
from addons.pool.pool import PeerPort, Pool
from addons.pool.pool_config import first_config
from addons.pool.pool_facts import PoolFacts, RelayFacts
from addons.pool.remote_reports.neighbours import Neighbours
from addons.pool.remote_reports.pod_report_server import PodReportServer
from addons.pool.shared_links.tunnel_server import TunnelServer
from addons.requests.answers import Answer
from addons.rules.in_force import RulesInForce
from addons.settings import Settings
from addons.telemetry import metrics
from addons.views.serving import Serving
from addons.views.source import Source
from addons.views.sources import Sources
from kube.concurrency.notifier import Notifier
from kube.http.client import Client
from kube.http.kubeconfig import Credentials
from kube.requests.node_labels import NODE_LABELS
from kube.requests.request_info import ResourceType


def join_pool(
    settings: Settings,
    credentials: Credentials,
    client: Client,
    hub: tuple[FilterInputs, Sources, Serving, RulesInForce],
    link: UpstreamManager,
    open_port: Callable[[bool], Awaitable[None]],
    close: Callable[[str, str], object],
    discovery: Callable[[str], Awaitable[Answer | None]] | None = None,
) -> Pool:
    """Return the pool, which begins with `run`. `client` sends requests with the hub's identity; `open_port` is that of
    `PeerPort`. `close` ends a connection of the peer port, by its id, for a reason. `discovery` is that of
    `PeerServing`."""
    inputs, sources, serving, rules = hub
    cloud, is_pool = link.cloud, settings.peer_clients == "pool"

    def further() -> tuple[ResourceType, ...]:
        return *rules.current().pool_resources, NODE_LABELS

    facts = _facts(settings, inputs, sources, further)
    certificate = _certificate(settings, client, cloud.changed)
    metrics.watch_expiry("peer", certificate.expiry)

    def authorities() -> Collection[x509.Certificate]:
        """Return the CAs of client certificates: those that kube-apiserver publishes, else the kubeconfig's."""
        return facts.authorities or credentials.cluster.authorities

    admission = Admission(lambda: certificate.current, authorities, facts.has)
    lent = TunnelServer(
        *(cloud, admission, settings.lend_rate),
        lambda connection: close(connection, "the node may no longer borrow"),
        is_on=is_pool and settings.lend == "on",
    )
    own = OwnPeer(
        *(settings.node, settings.peer_port, settings.peer_address or ANY_ADDRESS, credentials),
        lends=lambda: lent.has_path,
        # A relay neither lends nor borrows. A hub that does not verify servers borrows none: the lender could pose as
        # one.
        borrows=is_pool and settings.borrow == "on" and not credentials.cluster.insecure,
    )
    peers, shared = Peers(client, link.cut), SharedSources(sources, further)
    selector = LeaderSelector(own, peers, shared, lambda: cloud.is_up, relays=settings.relays)
    rules.listen(selector.share)
    rules.listen(facts.moved.notify)
    sources.on_new.append(selector.attach_reader)
    reports = neighbours = None
    if settings.mode == "edge" and is_pool:
        reports, stores = PodReportServer(inputs.reports[settings.node]), partial(endpoint_stores, sources)
        neighbours = Neighbours(settings.peer_port, peers, inputs, stores, cloud)
    tls = partial(peer_connection, credentials, authorities)
    link.pool = PoolLink(tls, lambda: peers.healths, lent.own, lent.cut)
    answers = PeerServing(sources, serving, lambda: selector.serves, facts.shares, reports, discovery)
    own_node = partial(_own_node, inputs)
    announcement = Announcement(settings.node, settings.peer_port, client, own_node) if is_pool else None
    port = PeerPort(certificate, announcement, admission, answers, lent, open_port)
    return Pool(facts, sources, selector, port, link, neighbours)


def _own_node(inputs: FilterInputs) -> Source:
    return inputs.input(InputKind.OWN_NODE).source


def _facts(
    settings: Settings,
    inputs: FilterInputs,
    sources: Sources,
    further: Callable[[], tuple[ResourceType, ...]],
) -> PoolFacts:
    if settings.peer_clients == "nodes":
        return RelayFacts(inputs, sources.get_own, settings.namespace, settings.node, further)
    first = first_config(settings.leaders)
    return PoolFacts(inputs, sources.get_own, settings.namespace, first, further)


async def announce_no_port(settings: Settings, client: Client) -> None:
    """Withdraw the announcement by an earlier hub of this node that had a peer port, as its certificate shows."""
    if await asyncio.to_thread(_certificate_file(settings).exists):
        announcement = Announcement(settings.node, settings.peer_port, client)
        announcement.announce(False)
        await announcement.run()


def _certificate_file(settings: Settings) -> Path:
    return settings.state_dir / "pki" / "peer.pem"


def _certificate(
    settings: Settings, client: Client, cloud_changed: Notifier
) -> RequestedCertificate | StaticCertificate:
    if settings.peer_cert is not None and settings.peer_key is not None:
        return StaticCertificate(ServingCertificate(settings.peer_cert, settings.peer_key))
    return serving_certificate_of("peer", settings.node, client, _certificate_file(settings), cloud_changed)
