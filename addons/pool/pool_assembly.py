"""Makes the parts of `addons.pool` of the parts of the hub, and hands them to each other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from addons.certificates.asked_certificate import AskedCertificate, serving_certificate_of
from addons.certificates.serving_certificate import GivenCertificate, ServingCertificate
from addons.inputs.filter_inputs import FilterInputs
from addons.inputs.words import endpoint_stores
from addons.link.link import Link
from addons.pool.announcement import Announcement
from addons.pool.deputies import ANY_ADDRESS
from addons.pool.following import Following
from addons.pool.peer_serving import PeerServing
from addons.pool.peer_tls import peer_connection
from addons.pool.pool import Pool
from addons.pool.pool_config import first_config
from addons.pool.pool_facts import PoolFacts, RelayFacts
from addons.pool.shared_links.borrowing import Borrowing
from addons.pool.shared_links.lending import LentWays
from addons.pool.words.neighbours import Neighbours
from addons.pool.words.spoken_words import SpokenWords
from addons.rules.in_force import RulesInForce
from addons.settings import Settings
from addons.telemetry import metrics
from addons.views.serving import Serving
from addons.views.sources import Sources
from kube.concurrency.pulse import Pulse
from kube.http.client import Client
from kube.http.kubeconfig import Credentials
from kube.requests.node_labels import NODE_LABELS


def join_pool(
    settings: Settings,
    credentials: Credentials,
    client: Client,
    hub: tuple[FilterInputs, Sources, Serving, RulesInForce],
    link: Link,
    open_port: Callable[[bool], Awaitable[None]],
    close: Callable[[str, str], object],
) -> Pool:
    """The pool, which begins with `run`. `client` sends as the hub; `open_port` as in `Pool`. `close` ends a connection
    of the peer port, by its id, for a reason."""
    inputs, sources, serving, rules = hub
    cloud, further = link.cloud, lambda: (*rules.current().pool_resources, NODE_LABELS)
    open_source = sources.get_own
    facts: PoolFacts
    announcement: Announcement | None = None
    if settings.peer_clients == "nodes":
        facts = RelayFacts(inputs, open_source, settings.namespace, settings.node, further)
    else:
        facts = PoolFacts(inputs, open_source, settings.namespace, first_config(settings.leaders), further)
        announcement = Announcement(settings.node, settings.peer_port, client)
    following = Following(
        *(settings.node, settings.peer_port, client, sources, lambda: cloud.is_up, link.cut),
        relays=settings.relays,
        address=settings.peer_address or ANY_ADDRESS,
        lends=lambda: pool.lends(),  # noqa: PLW0108 - it is made later
        further=further,
    )
    rules.listen(following.share)
    rules.listen(facts.moved.notify)
    sources.upstream_of = following.reader_of
    certificate = _certificate(settings, client, cloud.changed)
    metrics.watch_expiry("peer", certificate.expiry)
    pool = Pool(
        *(settings.node, credentials, facts, sources, following, certificate, announcement, open_port),
        *(cloud, settings.peer_port),
    )
    words = None
    if settings.mode == "edge" and settings.peer_clients != "nodes":
        words = SpokenWords(inputs.words)
        stores = partial(endpoint_stores, sources)
        pool.neighbours = Neighbours(settings.peer_port, client, inputs, stores, cloud, link.cut)
    pool.serving = PeerServing(sources, serving, pool.serves, pool.shares, words)
    link.start_peers(partial(peer_connection, credentials, pool.authorities), lambda: pool.peers)
    _share_links(settings, credentials, link, pool, close)
    return pool


def _share_links(
    settings: Settings, credentials: Credentials, link: Link, pool: Pool, close: Callable[[str, str], object]
) -> None:
    """Have the pool lend this node's way to the cloud, and borrow another's.

    A relay does neither. Who does not verify servers borrows nothing: the lender could take their place.
    """
    is_pool = settings.peer_clients == "pool"
    pool.lent = LentWays(
        *(link.cloud, pool.admission, settings.lend_rate),
        lambda connection: close(connection, "the node may borrow no longer"),
        is_on=is_pool and settings.lend == "on",
    )
    link.carried = pool.lent.own
    if is_pool and settings.borrow == "on" and not credentials.insecure:
        borrowing = Borrowing(link.cloud, link.borrow, pool.lenders)
        pool.borrowing = partial(borrowing.run, link.probed)


async def announce_no_port(settings: Settings, client: Client) -> None:
    """Take back what a hub of this node announced that had a peer port, as its certificate tells."""
    if await asyncio.to_thread(_certificate_file(settings).exists):
        announcement = Announcement(settings.node, settings.peer_port, client)
        announcement.announce(False)
        await announcement.run()


def _certificate_file(settings: Settings) -> Path:
    return settings.state_dir / "pki" / "peer.pem"


def _certificate(
    settings: Settings, client: Client, cloud_changed: Pulse
) -> AskedCertificate | GivenCertificate:
    if settings.peer_cert is not None and settings.peer_key is not None:
        return GivenCertificate(ServingCertificate(settings.peer_cert, settings.peer_key))
    return serving_certificate_of("peer", settings.node, client, _certificate_file(settings), cloud_changed)
