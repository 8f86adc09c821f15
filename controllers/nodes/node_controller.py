"""Installs hubs on nodes with the label, and removes them from other nodes: reads facts, and runs the actions of
`conversion`.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial

from controllers.cluster.jobs import COMPLETE, JOB, JOB_NAME, JOBS, Job
from controllers.cluster.kinds import NODES, PODS, Node
from controllers.cluster.node_pools import NODEPOOLS, NodePool, with_condition
from controllers.nodes.conversion import (
    PHASE,
    Direction,
    EdgeNode,
    EndJob,
    JobState,
    MakeJob,
    Move,
    Phase,
    Stage,
    plan,
    read_phase,
)
from controllers.nodes.node_job import DUTY, END_JOB, name_of, node_job, termination_message, waiting_reason
from controllers.nodes.pool_progress import Progress, progress
from controllers.nodes.waves import image_of, read_waves
from controllers.runtime import metrics
from controllers.runtime.controller import Context, Controller, own_key
from controllers.runtime.unstructured import metadata, texts, timestamp
from controllers.runtime.write_client import ObjectReference
from kube.errors import StatusError
from kube.fleet import HUBS_INSTALLED, FleetHub, fleet
from kube.json_type import Json
from kube.peers import CLOSED, PEER_ANNOTATION
from kube.requests.request_info import ResourceType
from kube.store.store import Key

LEASES = ResourceType("coordination.k8s.io", "v1", "leases")
LEASE_NAMESPACE = "kube-node-lease"
NODE_CONDITION = "HubInstalled"
HUB_REASONS = ("Installed", "Upgrading", "Upgraded", "UpgradeFailed")
"""Condition reasons of a node that has a hub; after a failed upgrade it runs the previous version."""
CHANGES = ("Installing", "Uninstalling")
INTERVAL = 5.0
"""Seconds between reads of the Leases of nodes whose hub is expected to report: the manager does not watch Leases."""
ALREADY_EXISTS = 409


class NodesController(Controller):
    """Runs the next steps of a pool's nodes, and reports progress. Key: a pool."""

    name = "nodes"
    debounce = 0.2

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._nodes = self.watch(NODES, _pools_of_node)
        self._pools = self.watch(NODEPOOLS, own_key)
        self._jobs = self.watch(JOBS, self._pool_of_job)
        self._image = context.settings.hub_image
        self._label = context.settings.edge_worker_label
        self._namespace = context.settings.namespace
        self._counts: dict[Key, dict[str, int]] = {}
        for state in metrics.NODE_STATES:
            metrics.EDGE_NODES.labels(state).set_function(partial(self._count, state))

    def _count(self, state: str) -> int:
        return sum(counts[state] for counts in self._counts.values())

    async def reconcile(self, key: Key) -> None:
        pool = self._pools.get(key)
        self._counts.pop(key, None)
        nodes = [node for _, node in self._nodes.items() if node.pool == key[1] and not node.deleting]
        if pool is None and not nodes:
            return
        now = datetime.now(UTC).replace(microsecond=0)
        waves = read_waves(pool.own_annotations if pool is not None else {})
        edge_nodes = await self._facts(pool, nodes, waves.version, now)
        chosen = plan(edge_nodes, waves, now)
        by_name = {node.name: node for node in nodes}
        versions = {node.name: node.job_version for node in edge_nodes}
        for action in chosen.actions:
            if isinstance(action, MakeJob):
                image = image_of(self._image, versions[action.node])
                await self._make_job(by_name[action.node], action.phase, image, now)
            elif isinstance(action, EndJob):
                name = name_of(action.node, action.phase)
                await self.patch(self._jobs, (self._namespace, name), END_JOB)
            else:
                await self._move(by_name[action.node], action)
        found = progress(edge_nodes, waves)
        self._counts[key] = _counts(edge_nodes)
        if pool is not None:
            await self._write_pool_condition(
                pool, found, now, concerns=any(_concerns(node) for node in edge_nodes)
            )
        is_waiting = any(node.is_in_progress for node in edge_nodes) or bool(chosen.actions)
        if chosen.again or is_waiting:
            self.queue.add_after(key, min(filter(None, (chosen.again, INTERVAL if is_waiting else 0.0))))

    async def _facts(
        self, pool: NodePool | None, nodes: list[Node], version: str, now: datetime
    ) -> list[EdgeNode]:
        leaders = {leader.node for leader in pool.leaders} if pool is not None else set()
        phases = {node.name: read_phase(node.annotations.get(PHASE, "")) for node in nodes}
        # A node that leaves its pool, or whose pool is deleted, keeps its hub, as long as it has the label.
        wanting = {
            node.name
            for node in nodes
            if node.labels.get(self._label) == "true" and (pool is not None or phases[node.name])
        }
        asks = bool(version and wanting) or any(
            _asks_for_hub(name in wanting, phase) for name, phase in phases.items()
        )
        hubs = await self._hubs(now) if asks else {}
        jobs = {name: self._job_state(name, phase) for name, phase in phases.items()}
        waiting = await self._waiting() if JobState.RUNNING in jobs.values() else {}
        return [
            EdgeNode(
                name=node.name,
                wants_hub=node.name in wanting,
                phase=phases[node.name],
                is_ready=node.ready,
                is_heard=not node.unheard_since,
                heard_since=_time(node.ready_changed),
                has_hub=_is_well(hub := hubs.get(node.name)),
                version=hub.status.version if hub is not None else "",
                wanted_version=version,
                need=next(iter(hub.needs), "") if hub is not None else "",
                job=jobs[node.name],
                waiting=waiting.get(name_of(node.name, phase)) if (phase := phases[node.name]) else None,
                message=node.hub[2],
                leads=node.name in leaders,
                can_lead=node.annotations.get(PEER_ANNOTATION, "") not in ("", CLOSED),
            )
            for node in nodes
        ]

    async def _hubs(self, now: datetime) -> dict[str, FleetHub]:
        """Return the reported state of each node's hub, by node."""
        leases = await self._context.informers.list_now(LEASES, LEASE_NAMESPACE)
        return {hub.node: hub for hub in fleet(leases, {}, now)}

    async def _waiting(self) -> dict[str, str]:
        """Return why the pods of unfinished Jobs do not start, by Job; "" for one that starts."""
        pods = await self._context.informers.list_now(
            PODS.type,
            self._namespace,
            labelSelector=f"{JOB}={DUTY}",
            fieldSelector="status.phase!=Succeeded,status.phase!=Failed",
        )
        return {
            texts(metadata(pod).get("labels")).get(JOB_NAME, ""): waiting_reason(pod)
            for pod in pods
            if "deletionTimestamp" not in metadata(pod)
        }

    def _job_state(self, node: str, phase: Phase | None) -> JobState:
        job = self._jobs.get((self._namespace, name_of(node, phase))) if phase is not None else None
        if job is None:
            return JobState.NONE
        if not job.outcome:
            return JobState.RUNNING
        return JobState.COMPLETE if job.outcome == COMPLETE else JobState.FAILED

    async def _make_job(self, node: Node, phase: Phase, image: str, now: datetime) -> None:
        try:
            made = await self._context.api.create(
                JOBS.type, node_job(self._namespace, node.name, phase, image)
            )
            await self._jobs.wait_until_observed(made)
        except StatusError as error:
            if error.code != ALREADY_EXISTS:
                raise
        await self._annotate(node, phase.at(Stage.RUN, now))

    async def _move(self, node: Node, move: Move) -> None:
        phase, message = move.phase, move.message
        is_failed = phase is not None and phase.stage is Stage.FAILED
        if is_failed and not message:
            assert phase is not None
            selector = f"{JOB_NAME}={name_of(node.name, phase)}"
            pods = await self._context.informers.list_now(PODS.type, self._namespace, labelSelector=selector)
            message = (
                termination_message(pods) or node.hub[2] or f"the Job {name_of(node.name, phase)} failed"
            )
        # The condition first: the steps follow the phase.
        await self._write_node_condition(node, move.reason, message, is_failed=is_failed)
        await self._annotate(node, phase)
        reference = ObjectReference("v1", "Node", "", node.name, node.uid)
        if is_failed:
            await self._context.events.warning(reference, move.reason, message)
        elif phase is not None and phase.stage is Stage.DONE:
            await self._context.events.normal(reference, move.reason, message or _why_done(phase))

    async def _annotate(self, node: Node, phase: Phase | None) -> None:
        value = None if phase is None else str(phase)
        await self.patch(self._nodes, ("", node.name), {"metadata": {"annotations": {PHASE: value}}})

    async def _write_node_condition(self, node: Node, reason: str, message: str, *, is_failed: bool) -> None:
        status = "True" if reason in HUB_REASONS else "Unknown" if reason in CHANGES else "False"
        if (status, reason, message) == node.hub:
            return
        condition = {"type": NODE_CONDITION, "status": status, "reason": reason, "message": message}
        condition["lastTransitionTime"] = timestamp(datetime.now(UTC))
        patch: Json = {"metadata": {"uid": node.uid}, "status": {"conditions": [condition]}}
        written = await self._context.api.strategic_merge_patch(NODES.type, "", node.name, patch, "status")
        await self._nodes.wait_until_observed(written)

    async def _write_pool_condition(
        self, pool: NodePool, found: Progress, now: datetime, *, concerns: bool
    ) -> None:
        """Write the condition of a pool in which a node has a hub, or a label for one."""
        status = "True" if found.is_done else "False"
        condition = {"status": status, "reason": found.reason, "message": found.message}
        wanted = with_condition(pool.conditions, HUBS_INSTALLED, condition if concerns else None, now)
        if wanted == list(pool.conditions):
            return
        patch = {"metadata": {"resourceVersion": pool.version}, "status": {"conditions": wanted}}
        await self.patch(self._pools, ("", pool.name), patch, "status")

    def _pool_of_job(self, _key: Key, old: Job | None, new: Job | None) -> Iterable[Key]:
        """MapFunc: the pool of the node whose Job has changed."""
        job = new or old
        if job is None or old == new:
            return ()
        return {
            ("", node.pool)
            for _, node in self._nodes.items()
            if (phase := read_phase(node.annotations.get(PHASE, "")))
            and name_of(node.name, phase) == job.name
        }


def _asks_for_hub(wants: bool, phase: Phase | None) -> bool:
    """Whether the node's next step depends on the hub's state."""
    if phase is None:
        return wants
    removes = phase.direction is Direction.UNINSTALL and phase.stage is Stage.START
    return removes or phase.stage is Stage.CHECK


def _is_well(hub: FleetHub | None) -> bool:
    """Whether the hub reports that it is healthy, and its node renews its Lease."""
    return hub is not None and hub.silent is None and bool(hub.status.version) and not hub.status.problems


def _why_done(phase: Phase) -> str:
    return f"as its pool asks, to {phase.version}" if phase.version else "as the label asks"


def _concerns(node: EdgeNode) -> bool:
    return node.wants_hub or node.phase is not None


def _counts(nodes: Iterable[EdgeNode]) -> dict[str, int]:
    counts = dict.fromkeys(metrics.NODE_STATES, 0)
    for node in nodes:
        if node.has_failed:
            counts["failed"] += 1
        elif node.is_in_progress:
            counts["under way"] += 1
        elif node.next_direction is not None:
            counts["waiting"] += 1
        elif node.wants_hub:
            counts["joined"] += 1
    return counts


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _pools_of_node(_key: Key, old: Node | None, new: Node | None) -> Iterable[Key]:
    return {("", node.pool) for node in (old, new) if node is not None and old != new}
