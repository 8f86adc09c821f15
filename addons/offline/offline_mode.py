"""Assembles the components that answer without the cloud: reads, writes and the Lease."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from addons.inputs.filter_inputs import FilterInputs
from addons.inputs.kubelet_reports import KubeletReports
from addons.inputs.pod_reports import endpoint_stores
from addons.link.cloud_access import CloudAccess
from addons.link.identities.kubelet import KubeletAccess
from addons.offline.cached_relay import CachedRelay
from addons.offline.copy_answers import CopyAnswers
from addons.offline.garbage import Garbage
from addons.offline.node_lease import NodeLease
from addons.offline.offline_answers import OfflineAnswers
from addons.offline.offline_reads import OfflineReads, cached_answer
from addons.offline.offline_tables import OfflineTables
from addons.offline.people.cached_discovery import Discovery, Leader
from addons.offline.people.pod_requests import PodRequests
from addons.offline.writes.journal_entries import StatusEntry
from addons.offline.writes.minimal_status_patches import MinimalStatusPatches
from addons.offline.writes.offline_creates import OfflineCreates
from addons.offline.writes.offline_writes import OfflineWrites
from addons.offline.writes.post_outage_sync import PostOutageSync
from addons.offline.writes.replay import Replay
from addons.offline.writes.status_writes import StatusWrites
from addons.requests.answers import Answer
from addons.requests.cloud_identity import HUB_IDENTITY
from addons.requests.route_decision import RouteKind
from addons.settings import Settings
from addons.telemetry.background import background
from addons.views.reviews import Reviews
from addons.views.sources import Sources
from kube.reflector.list_watch import ListWatch
from kube.requests.object_ref import ObjectRef
from kube.requests.request_info import ResourceType, parse_request
from kube.store.store import Item

PODS = ResourceType("", "v1", "pods")


class Offline:
    """The components that answer without the cloud, and their tasks, until `close`."""

    def __init__(
        self,
        tables: OfflineTables,
        settings: Settings,
        cloud: CloudAccess,
        reviews: Reviews,
        sources: Sources,
        inputs: FilterInputs,
    ) -> None:
        self.tables = tables
        own, servers = cloud.clients.hub, cloud.servers
        objects = OfflineReads(sources, tables.answers, tables.accepted, settings.wait, self._with_own_status)
        status = StatusWrites(settings.node, objects, tables.answers, tables.journal, own)
        own_pods = partial(_own_pods, sources, settings.node)
        reports = inputs.reports[settings.node] = KubeletReports(
            *(inputs.changed, inputs.ask),
            lambda: sources.permanent(own_pods() or _wanted(settings.node)).store,
            lambda: own_pods() is not None,
        )
        tables.journal.on_status.append(lambda entry: reports.heard(entry.path, entry.after))
        for waiting in tables.journal.statuses.values():
            reports.heard(waiting.path, waiting.after)
        replay = Replay(
            *(tables.journal, own, servers, status.reload_copies),
            partial(self._replayed, reports),
            reviews.client_of_user,
        )
        creations = OfflineCreates(objects, tables.answers, given=tables.known_callers.store_issued)
        writes = OfflineWrites(status, creations, tables.journal, replay)
        kubelet = KubeletAccess.of(settings.node, *settings.kubelet_files)
        find = partial(objects.find, HUB_IDENTITY)
        pods = PodRequests(kubelet, find, reviews, tables.answers) if kubelet is not None else None
        further = pods.questions if pods is not None else tuple
        discovery = self._discovery = Discovery(own, tables.answers, servers, further)
        answers = OfflineAnswers(tables, reviews, CopyAnswers(objects, discovery, servers), writes, pods)
        sparing = MinimalStatusPatches(settings.node, sources)
        self.cached_relay = CachedRelay(settings.node, cloud, answers, writes, sparing)
        # As in kube-apiserver: where lists must wait, signs of life need not.
        alive = own.with_headers({}, queue="lease")
        self._lease = NodeLease(settings.node, alive, tables.answers, servers)
        returned = PostOutageSync(settings.node, alive, objects, servers, self._lease.is_alive)
        garbage = Garbage(tables, sources, settings.node, settings.keep_days, servers)
        self._tasks = [
            background(replay.run(), "replay of the journal"),
            background(self._lease.run(), "renewal of the lease"),
            background(returned.run(), "return of the node"),
            background(garbage.run(), "garbage on disk"),
            background(reports.run(partial(endpoint_stores, sources)), "pod reports"),
            background(reports.follow(lambda: servers.is_up, servers.changed), "pod reports in an outage"),
            background(tables.accepted.follow(servers), "accepted writes in an outage"),
        ]

    def _replayed(self, reports: KubeletReports, entry: StatusEntry, version: int) -> None:
        """Handle a journaled status that the cloud has accepted, which earlier lists do not have, or has refused."""
        reports.ended(entry.path, version)
        ref = ObjectRef.of(parse_request("GET", entry.path))
        if ref is not None:
            self.tables.answers.forget_about(ref, singles=False)

    async def _with_own_status(self, path: str, item: Item) -> Item:
        entry = self.tables.journal.statuses.get(path)
        # In a thread, because a status of megabytes takes seconds.
        return item if entry is None else await asyncio.to_thread(entry.applied_to, item)

    async def discovered(self, path: str) -> Answer | None:
        """The cloud's answer to a path of discovery, for other hubs."""
        return cached_answer(await self._discovery.stored(path))

    def discover(self, leader: Leader | None) -> None:
        """Begin to fetch discovery documents, from the pool's leader while there is one."""
        self._tasks.append(background(self._discovery.run(leader), "discovery"))

    @property
    def answerers(self) -> dict[RouteKind, CachedRelay | NodeLease]:
        return {RouteKind.CACHED_RELAY: self.cached_relay, RouteKind.LOCAL: self._lease}

    def publish_status(self, status: str) -> None:
        """Publish this hub's state in the cloud, with the node's Lease."""
        self._lease.publish_status(status)

    def describe(self) -> dict[str, Any]:
        """Return the state of the Lease and the journal, for the debug page."""
        return {"lease": self._lease.describe(), "journal": self.tables.journal.describe()}

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()


def _wanted(node: str) -> ListWatch:
    return ListWatch(PODS, field_selector=f"spec.nodeName={node}")


def _own_pods(sources: Sources, node: str) -> ListWatch | None:
    """Return the list-watch with which this node's kubelet reads its pods; None if there is none."""
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
