"""This hub's membership in its pool: derives its role from the pool's facts, and applies each change of either."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from addons.certificates.requested_certificate import RequestedCertificate
from addons.certificates.serving_certificate import StaticCertificate
from addons.link.link import UpstreamManager
from addons.link.servers import Lender
from addons.pool.announcement import Announcement
from addons.pool.leader_selector import LeaderSelector
from addons.pool.peer_admission import Admission
from addons.pool.peer_serving import PeerServing
from addons.pool.pool_config import Role, role_of
from addons.pool.pool_facts import PoolFacts
from addons.pool.remote_reports.neighbours import Neighbours
from addons.pool.remote_reports.report_objects import POD_REPORTS
from addons.pool.shared_links.tunnel_server import TunnelServer
from addons.pool.shared_links.uplink_fallback import UplinkFallback
from addons.pool.spread import leader_order
from addons.requests.cloud_identity import HUB_IDENTITY
from addons.requests.headers import AGE_HEADER, DEPUTIES_HEADER, LENDERS_HEADER, SHARES_HEADER
from addons.rules.shared_kinds import is_opt_in, unfiltered_list_watch
from addons.telemetry import metrics
from addons.telemetry.labels import HUB
from addons.views.open_view import ViewKey
from addons.views.source import Source
from addons.views.sources import Sources
from kube.concurrency.notifier import Notifier, completes_within
from kube.errors import StatusError
from kube.reflector.list_watch import ListWatch
from kube.requests.node_labels import NODE_LABELS
from kube.store.scope import EVERYTHING

PORT_RETRY = 30.0
"""Seconds until the hub retries to open a peer port that could not be opened."""
HOLD_INTERVAL = 60.0
"""Seconds between renewals of the views that a potential leader keeps open for the pool; unused views close later."""
PEER_KEY = ViewKey(HUB, "watch", EVERYTHING)
"""The unfiltered view that peers read."""

logger = logging.getLogger(__name__)


class PeerPort(NamedTuple):
    certificate: RequestedCertificate | StaticCertificate
    announcement: Announcement | None
    """Announces the port to the manager; None if no manager elects the hub, as for a relay."""
    admission: Admission
    serving: PeerServing
    lent: TunnelServer
    open: Callable[[bool], Awaitable[None]]
    """Opens or closes the port; OSError if that fails."""


class Pool:
    """Runs the tasks of the pool, and answers the hub's other components about it."""

    def __init__(
        self,
        facts: PoolFacts,
        sources: Sources,
        selector: LeaderSelector,
        port: PeerPort,
        link: UpstreamManager,
        neighbours: Neighbours | None = None,
    ) -> None:
        """`neighbours` is None if the hub does not answer offline."""
        self.role = Role.NONE
        self.since = time.time()
        self.selector = selector
        self.port = port
        self._own = selector.own
        self._facts = facts
        self._sources = sources
        self._link = link
        self._neighbours = neighbours
        self._cloud_lost: float | None = None
        self._is_open = False
        self._port_error = ""
        self._certificate_is_known = False
        """Whether the hub has checked for a certificate of an earlier process."""
        self._changed = Notifier()
        self._held: dict[ListWatch, Source] = {}
        for role in Role:
            metrics.POOL_ROLE.labels(role).set(role is self.role)

    async def run(self) -> None:
        """Run the pool's tasks until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._facts.run(self._update), name="facts of the pool")
            group.create_task(self.selector.peers.run(), name="probes of other hubs")
            group.create_task(self.selector.run(), name="sources in the pool")
            group.create_task(
                self.port.certificate.run(self._certificate_changed), name="certificate of the peer port"
            )
            group.create_task(self._keep_port(), name="peer port")
            group.create_task(self._follow_cloud(), name="age of the leader")
            group.create_task(self._follow_naming(), name="naming of deputies")
            group.create_task(self._hold(), name="views for the pool")
            if self.port.announcement is not None:
                group.create_task(self.port.announcement.run(), name="announcement of the peer port")
            if self._own.borrows:
                fallback = UplinkFallback(self._link.cloud, self._link.borrow, self.lenders)
                group.create_task(fallback.run(self._link.probed), name="uplink fallback")
            if self._neighbours is not None:
                group.create_task(self._neighbours.run(), name="pod reports of other nodes")

    def close(self) -> None:
        self._facts.close()
        self.port.serving.close()

    def leads(self) -> bool:
        return self.role is Role.LEADER

    def age(self) -> float:
        """Seconds since this hub lost the cloud; 0 while it has the cloud."""
        return max(1.0, time.monotonic() - self._cloud_lost) if self._cloud_lost is not None else 0.0

    def headers(self) -> Mapping[str, str]:
        """The headers that this hub adds to each answer of the peer port."""
        headers = {AGE_HEADER: f"{self.age():.0f}"}
        members = self._facts.members or ()
        shared = {resource.group_resource for resource in self._facts.config.scope if is_opt_in(resource)}
        if shared and self.selector.serves:
            headers[SHARES_HEADER] = ",".join(sorted(shared))
        if self.leads() and self._facts.config.has_deputies:
            headers[DEPUTIES_HEADER] = self.port.admission.deputies.named(members)
        if self.leads() and (lenders := self.port.admission.lenders.named(members)):
            headers[LENDERS_HEADER] = lenders
        return headers

    def lenders(self) -> list[Lender]:
        """The hubs whose link this node may borrow: the pool's leaders, the hubs that leaders name, and the hubs that
        announced themselves to this leader; empty if this hub has no client certificate."""
        config = self._facts.config
        if not config.is_shared or not self._own.can_follow:
            return []
        admission = self.port.admission
        known_lenders = (*self.selector.lenders, *admission.deputies.live, *admission.lenders.live)
        # Of two addresses of a node the ConfigMap's counts.
        known = {
            lender.node: lender
            for lender in (*known_lenders, *config.leaders)
            if lender.node != self._own.node
        }
        others = leader_order(known.values(), self._own.node)
        others.sort(key=lambda other: self.selector.peers.has_lost_cloud(other.node))
        return [Lender("https", other.address, self._own.port, node=other.node) for other in others]

    def describe(self) -> dict[str, Any]:
        """Return this hub's leaders, the leader that it follows, and its followers, for the debug page."""
        facts = self._facts
        return {
            "pool": facts.name,
            "known": facts.is_known,
            "role": self.role,
            "isDeputy": self.selector.is_deputy,
            "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.since)),
            "shared": [resource.group_resource for resource in facts.config.scope]
            if facts.config.is_shared
            else [],
            "leaders": [f"{leader.node}/{leader.address}" for leader in facts.config.leaders],
            "members": sorted(facts.members or ()),
            "canLead": self._is_open,
            "whyNot": self._why_not(),
            "ageSeconds": round(self.age(), 1),
            "follows": self.selector.describe(),
            "sources": self.selector.describe_sources(),
            "followers": self.port.serving.watchers(),
            "lends": self.port.lent.tunnels(),
            "neighbours": self._neighbours.describe() if self._neighbours is not None else [],
        }

    def closed(self) -> list[str]:
        """Why the peer port is closed although the hub has all that it needs to serve there."""
        return [self._port_error] if self._port_error else []

    def _why_not(self) -> str:
        if self._is_open or not self._facts.config.is_shared:
            return ""
        return self._port_error or ("" if self.port.certificate.current else "no certificate yet")

    def _certificate_changed(self) -> None:
        self._certificate_is_known = True
        self._update()

    def _update(self) -> None:
        facts = self._facts
        if not facts.is_known and not facts.config.is_shared:
            return
        self.port.certificate.want(facts.config.is_shared)
        can_follow = self._own.can_follow
        role = role_of(
            facts.config, self._own.node, can_lead=self._is_open and facts.is_known, can_follow=can_follow
        )
        if role is not self.role:
            leaders = ", ".join(leader.node for leader in facts.config.leaders) or "none"
            logger.info("pool %s: %s, was %s (leaders: %s)", facts.name or "(none)", role, self.role, leaders)
            metrics.POOL_ROLE.labels(self.role).set(0)
            metrics.POOL_ROLE.labels(role).set(1)
            self.role, self.since = role, time.time()
        self.selector.update(
            role, facts.config, facts.members or (), can_follow=can_follow, can_serve=self._is_open
        )
        if self._neighbours is not None:
            config = facts.config
            named = {*config.leaders, *config.hubs} if config.is_shared and can_follow else ()
            others = (node for node in sorted(named) if node.node != self._own.node and facts.has(node.node))
            self._neighbours.update(others)
        self._end_streams()
        self._changed.notify()

    def _end_streams(self) -> None:
        """End the streams of followers that this hub no longer serves."""
        facts, selector = self._facts, self.selector
        self.port.lent.keep_only(lambda node: self._is_open and facts.has(node) is not False)
        self.port.serving.keep_only(
            lambda node, type_: (
                facts.has(node) is True
                and (type_ == POD_REPORTS or (selector.serves and facts.shares(type_)))
            )
        )

    async def _follow_naming(self) -> None:
        """Start and stop serving when leaders name this node as deputy or no longer do."""
        was_deputy = False
        while True:
            woken = self.selector.renamed.wait()
            if self.selector.is_deputy is not was_deputy:
                was_deputy = not was_deputy
                logger.info(
                    "pool %s: this hub is %s",
                    self._facts.name,
                    "a deputy" if was_deputy else "no deputy any more",
                )
            self._end_streams()
            self._changed.notify()
            await woken

    async def _keep_port(self) -> None:
        """Open the port while the pool elects leaders and the hub has a certificate, and announce it."""
        while True:
            woken = self._changed.wait()
            is_shared, has_certificate = (
                self._facts.config.is_shared,
                self.port.certificate.current is not None,
            )
            wanted = is_shared and has_certificate
            if wanted is not self._is_open:
                try:
                    await self.port.open(wanted)
                except OSError as error:
                    self._log_port(error.strerror or str(error))
                else:
                    self._is_open = self.port.lent.is_open = wanted
                    self._port_error = ""
                    self._announce()
                    self._update()
            elif not wanted:
                self._port_error = ""
            # An earlier process may have announced a port that this one cannot open, or has no certificate for.
            if is_shared and (has_certificate or self._certificate_is_known):
                self._announce()
            await completes_within(PORT_RETRY if wanted is not self._is_open else None, woken)

    def _announce(self) -> None:
        if self.port.announcement is not None:
            self.port.announcement.announce(self._is_open)

    def _log_port(self, error: str) -> None:
        if error != self._port_error:
            self._port_error = error
            logger.error("%s: this hub cannot lead its pool", error)

    async def _follow_cloud(self) -> None:
        while True:
            changed = self._link.cloud.changed.wait()
            if self._link.cloud.is_up:
                self._cloud_lost = None
            elif self._cloud_lost is None:
                self._cloud_lost = time.monotonic()
            self.selector.balance()
            await changed

    async def _hold(self) -> None:
        """Keep the sources of all shared resources, with their history, so that followers of another leader can resume
        here.

        A leader and a deputy read all shared resources. A hub that may become leader keeps the history of those that it
        reads anyway.
        """
        while True:
            woken = self._changed.wait()
            # The manager's NodeLabels are read when a filter of some hub of the pool asks for them.
            scope = [resource for resource in self._facts.config.scope if resource != NODE_LABELS]
            wanted = (
                {unfiltered_list_watch(resource) for resource in scope} if self.selector.serves else set()
            )
            for list_watch in [list_watch for list_watch in self._held if list_watch not in wanted]:
                self._held.pop(list_watch).users -= 1
            for list_watch in wanted.difference(self._held):
                source = self._held[list_watch] = self._sources.get(HUB_IDENTITY, list_watch)
                source.users += 1
            for source in self._sources if self._is_open else ():
                if self._is_shared(source) and source.store.complete:
                    with contextlib.suppress(StatusError):
                        await source.view(PEER_KEY, 1.0)
            # A source that has its first list now gets its view soon, all others stay open.
            pending = any(not source.store.complete for source in self._held.values())
            await completes_within(1.0 if pending else HOLD_INTERVAL, woken)

    def _is_shared(self, source: Source) -> bool:
        wanted = source.list_watch
        is_unfiltered = wanted == unfiltered_list_watch(wanted.type, wanted.encoding)
        return not source.user and is_unfiltered and self._facts.shares(wanted.type)
