"""Puts together the parts that let a node do without its cloud: disk, copies, journal and Lease."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

from addons.inputs.kubelet_reports import KubeletReports
from addons.inputs.pod_reports import endpoint_stores
from addons.link.health import Cloud
from addons.link.identities.kubelet import KubeletAccess
from addons.offline.accepted.accepted_writes import AcceptedWrites
from addons.offline.cached_relay import CachedRelay
from addons.offline.cached_responses import CachedResponses
from addons.offline.caller_cache import CallerCache
from addons.offline.copies import DiskCopies
from addons.offline.garbage import Garbage
from addons.offline.node_lease import NodeLease
from addons.offline.offline_reads import OfflineReads, cached_answer
from addons.offline.people.cached_discovery import Discovery
from addons.offline.people.pod_requests import PodRequests
from addons.offline.tables.disk_access import DiskAccess
from addons.offline.version_cache import VersionCache
from addons.offline.writes.journal import TABLE, Journal
from addons.offline.writes.journal_entries import StatusEntry
from addons.offline.writes.minimal_status_patches import MinimalStatusPatches
from addons.offline.writes.offline_creates import OfflineCreates
from addons.offline.writes.offline_leases import OfflineLeases
from addons.offline.writes.offline_writes import OfflineWrites
from addons.offline.writes.post_outage_sync import PostOutageSync
from addons.offline.writes.replay import Replay
from addons.offline.writes.status_writes import StatusWrites
from addons.requests.answers import Answer
from addons.requests.clients import Clients
from addons.requests.cloud_identity import HUB_IDENTITY
from addons.requests.route_decision import RouteKind
from addons.rules.issued_versions import IssuedVersions
from addons.settings import Settings
from addons.telemetry.background import background
from addons.views.known_callers import KnownCallers
from addons.views.reviews import Reviews
from addons.views.sources import Sources
from kube.disk.database import Disk
from kube.disk.writer import DiskWriter
from kube.http.client import Client
from kube.reflector.list_watch import ListWatch
from kube.requests.object_ref import ObjectRef
from kube.requests.request_info import ResourceType, parse_request
from kube.schemas.published import messages
from kube.store.store import Item, Key

PODS = ResourceType("", "v1", "pods")


class Offline:
    """The parts.

    `open` reads the disk, `build` makes the parts that need the rest of the hub, `close` writes pending rows.
    """

    def __init__(self, folder: Path) -> None:
        self.access = DiskAccess(Disk(folder, saved=(TABLE,)), DiskWriter())
        self.copies = DiskCopies(self.access)
        self._answers = CachedResponses(self.access)
        self.copies.on_restore.append(self._answers.forget_all)
        self._accepted = AcceptedWrites(self.access, self._answers, self.copies)
        self._journal = Journal(self.access)
        self._edit = VersionCache(self.copies)
        self._callers = CallerCache(self.access)
        self._leases = OfflineLeases(self.access)
        self.copies.on_restore.append(self._leases.forget_all)
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Read an earlier process's state, and the schema by which kubelet's first status is read."""
        await asyncio.to_thread(messages)
        await self.copies.open()
        await self._answers.open()
        await self._accepted.open()
        await self._journal.open()
        await self._edit.open()
        await self._callers.open()
        await self._leases.open()

    def build(
        self,
        settings: Settings,
        clients: Clients,
        cloud: Cloud,
        reviews: Reviews,
        sources: Sources,
        reports: KubeletReports,
        leases: Callable[[], Collection[Key]],
    ) -> None:
        """Start the parts. `words` receives kubelet's pod statuses; `leases` are those that pods may renew at the
        hub."""
        own = clients.hub
        self._accepted.start(sources)
        self._leases.start(leases)
        objects = OfflineReads(sources, self._answers, self._accepted, settings.wait, self._with_own_status)
        status = StatusWrites(settings.node, objects, self._answers, self._journal, own)
        own_pods = partial(_own_pods, sources, settings.node)
        reports.start(
            lambda: sources.lasting(own_pods() or _wanted(settings.node)).store,
            lambda: own_pods() is not None,
        )
        self._journal.on_status.append(lambda entry: reports.heard(entry.path, entry.after))
        for waiting in self._journal.statuses.values():
            reports.heard(waiting.path, waiting.after)
        replay = Replay(
            *(self._journal, own, cloud, status.take_back),
            partial(self._replayed, reports),
            reviews.client_of_user,
        )
        creations = OfflineCreates(objects, self._answers, given=self.known_callers.was_given)
        writes = OfflineWrites(status, creations, self._journal, replay)
        kubelet = KubeletAccess.of(settings.node, *settings.kubelet_files)
        find = partial(objects.find, HUB_IDENTITY)
        pods = PodRequests(kubelet, find, reviews, self._answers) if kubelet is not None else None
        further = pods.questions if pods is not None else tuple
        discovery = self._discovery = Discovery(own, self._answers, cloud, further)
        self.cached_relay = CachedRelay(
            *(settings.node, clients, cloud, reviews, objects, self._answers, writes, discovery),
            *(self._leases, MinimalStatusPatches(settings.node, sources), self._accepted, pods),
        )
        # As in kube-apiserver: where lists must wait, signs of life need not.
        alive = own.with_headers({}, queue="lease")
        self._lease = NodeLease(settings.node, alive, self._answers, cloud)
        returned = PostOutageSync(settings.node, alive, objects, cloud, self._lease.is_alive)
        caches = self.copies, self._answers, self.known_callers
        garbage = Garbage(*caches, sources, settings.node, settings.keep_days, cloud)
        self._tasks = [
            background(replay.run(), "replay of the journal"),
            background(self._lease.run(), "renewal of the lease"),
            background(returned.run(), "return of the node"),
            background(garbage.run(), "garbage on disk"),
            background(discovery.run(), "discovery"),
            background(reports.run(partial(endpoint_stores, sources)), "pod reports"),
            background(reports.follow(lambda: cloud.is_up, cloud.changed), "pod reports in an outage"),
            background(self._accepted.follow(cloud), "accepted writes in an outage"),
        ]

    def _replayed(self, reports: KubeletReports, entry: StatusEntry, version: int) -> None:
        """The cloud has accepted a journaled status, which earlier lists do not have, or has refused it."""
        reports.ended(entry.path, version)
        ref = ObjectRef.of(parse_request("GET", entry.path))
        if ref is not None:
            self._answers.forget_about(ref, singles=False)

    async def _with_own_status(self, path: str, item: Item) -> Item:
        entry = self._journal.statuses.get(path)
        # Not in the loop: a status of megabytes takes seconds.
        return item if entry is None else await asyncio.to_thread(entry.laid_on, item)

    async def discovered(self, path: str) -> Answer | None:
        """The cloud's answer to a path of discovery, for other hubs."""
        return cached_answer(await self._discovery.stored(path))

    def follow(self, leader: Callable[[], Awaitable[Client | None]]) -> None:
        """Ask a pool's leader for discovery, while there is one."""
        self._discovery.leader = leader

    @property
    def answerers(self) -> dict[RouteKind, CachedRelay | NodeLease]:
        return {RouteKind.CACHED_RELAY: self.cached_relay, RouteKind.LOCAL: self._lease}

    @property
    def known_callers(self) -> KnownCallers:
        """The cloud's answers about callers, beginning with those to an earlier process."""
        return self._callers.known

    def issued_versions(self) -> IssuedVersions:
        """The versions that clients may hold, beginning with those that an earlier process sent."""
        return self._edit.given()

    def publish_status(self, status: str) -> None:
        """Publish this hub's state in the cloud, with the node's Lease."""
        self._lease.publish_status(status)

    def waiting(self) -> int:
        """How many writes wait for the cloud."""
        return len(self._journal.statuses) + len(self._journal.events)

    def describe(self) -> dict[str, Any]:
        """The state of the Lease and the journal, for the debug page."""
        return {"lease": self._lease.describe(), "journal": self._journal.describe()}

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        self.access.close()


def _wanted(node: str) -> ListWatch:
    return ListWatch(PODS, field_selector=f"spec.nodeName={node}")


def _own_pods(sources: Sources, node: str) -> ListWatch | None:
    """The pods of this node, as its kubelet reads them; None where none does."""
    own = _wanted(node)
    list_watches = sources.list_watches(HUB_IDENTITY, PODS)
    return next(
        (
            cached_answer
            for cached_answer in list_watches
            if cached_answer._replace(encoding=own.encoding) == own
        ),
        None,
    )
