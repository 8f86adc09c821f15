"""Marks outdated pods of DaemonSets that have OpenYurt's update annotation, and replaces them where it requests that.

With `OTA` the node replaces a pod: a hub's admin port deletes it. With `AdvancedRollingUpdate` the manager deletes the
pod while its node is Ready.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from datetime import UTC, datetime

from controllers.cluster.kinds import NODES, PODS, Node, Pod
from controllers.runtime import metrics
from controllers.runtime.controller import Context, Controller
from controllers.runtime.write_client import unless_gone
from controllers.updates.daemon_sets import DAEMON_SETS, REVISIONS, DaemonSet, Revision, Strategy, newest
from controllers.updates.rollouts import Rollout, need_upgrade_patch, to_replace
from kube.errors import StatusError
from kube.store.store import Key

INVALID_STRATEGY = "InvalidUpdateStrategy"
"""Reason of the Event about an invalid annotation."""


class DaemonPodUpdater(Controller):
    """Updates the pods of a DaemonSet by its strategy annotation. Key: a DaemonSet."""

    name = "daemonpodupdater"
    debounce = 0.1

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._sets = self.watch(DAEMON_SETS, _changed)
        self._revisions = self.watch(REVISIONS, self._set_of_revision)
        self._pods = self.watch(PODS, self._set_of_pod)
        self._nodes = self.watch(NODES, self._sets_of_node)
        self._deleted: dict[Key, set[str]] = {}
        """By DaemonSet: uids of deleted pods whose deletion the watch has not shown yet."""
        self._outdated: dict[Key, int] = {}
        metrics.PODS_OUTDATED.set_function(lambda: sum(self._outdated.values()))

    async def reconcile(self, key: Key) -> None:
        found = self._sets.get(key)
        self._outdated.pop(key, None)
        if found is None or found.deleting:
            self._deleted.pop(key, None)
            return
        pods = [pod for _, pod in self._pods.by_index("daemonset", found.uid)]
        rollout = self._rollout(found)
        if found.error:
            await self._context.events.warning(found.reference, INVALID_STRATEGY, found.error)
        elif rollout is None and found.strategy is not None:
            return  # until its revision comes
        refused = await self._mark(pods, rollout)
        if rollout is not None:
            self._outdated[key] = sum(
                rollout.is_outdated(pod.daemon) is True for pod in pods if pod.daemon is not None
            )
            if found.strategy is Strategy.ADVANCED:
                await self._replace(key, rollout, pods)
        if refused is not None:
            raise refused

    def _rollout(self, daemon_set: DaemonSet) -> Rollout | None:
        if daemon_set.strategy is None or daemon_set.error:
            return None
        revisions = [revision for _, revision in self._revisions.by_index("daemonset", daemon_set.uid)]
        current = newest(daemon_set, revisions)
        numbers = {revision.hash: revision.number for revision in revisions}
        return None if current is None else Rollout(daemon_set, current, numbers)

    async def _mark(self, pods: list[Pod], rollout: Rollout | None) -> StatusError | None:
        """Mark outdated pods; return the last error. A pod that cannot be marked delays no other pod."""
        refused = None
        for pod in pods:
            patch = need_upgrade_patch(pod.daemon, rollout) if pod.daemon and not pod.daemon.deleting else {}
            if not patch:
                continue
            try:
                with unless_gone():
                    written = await self._context.api.strategic_merge_patch(
                        PODS.type, pod.namespace, pod.name, patch, "status"
                    )
                    await self._pods.wait_until_observed(written)
            except StatusError as error:
                refused = error
        return refused

    async def _replace(self, key: Key, rollout: Rollout, pods: list[Pod]) -> None:
        going = {pod.daemon.uid for pod in pods if pod.daemon is not None and not pod.daemon.deleting}
        deleted = self._deleted[key] = self._deleted.get(key, set()) & going
        now = datetime.now(UTC)
        chosen = to_replace(rollout, pods, self._ready_nodes(), deleted, now)
        for pod in chosen.pods:
            if pod.daemon is not None:
                await self._context.api.delete(PODS.type, pod.namespace, pod.name, pod.daemon.uid)
                deleted.add(pod.daemon.uid)
                metrics.PODS_REPLACED.inc()
        if chosen.again:
            self.queue.add_after(key, chosen.again)

    def _ready_nodes(self) -> Set[str]:
        return {node.name for _, node in self._nodes.items() if node.ready}

    def _set_of_revision(self, _key: Key, old: Revision | None, new: Revision | None) -> Iterable[Key]:
        return {
            key
            for revision in (old, new)
            if revision is not None and old != new
            for key in self._asking((revision.namespace, revision.owner))
        }

    def _set_of_pod(self, _key: Key, old: Pod | None, new: Pod | None) -> Iterable[Key]:
        was, now = (pod.daemon if pod is not None else None for pod in (old, new))
        pod, daemon = new or old, now or was
        if pod is None or daemon is None or was == now:
            return ()
        return self._asking((pod.namespace, daemon.owner))

    def _asking(self, key: Key) -> Iterable[Key]:
        found = self._sets.get(key)
        return (key,) if found is not None and found.strategy is not None else ()

    def _sets_of_node(self, _key: Key, old: Node | None, new: Node | None) -> Iterable[Key]:
        was, now = (node is not None and node.ready for node in (old, new))
        if was == now:
            return ()
        return [key for key, found in self._sets.items() if found.strategy is Strategy.ADVANCED]


def _changed(key: Key, old: DaemonSet | None, new: DaemonSet | None) -> Iterable[Key]:
    """MapFunc: the key of a DaemonSet that has or had an update strategy."""
    asks = any(daemon_set is not None and daemon_set.strategy is not None for daemon_set in (old, new))
    return (key,) if old != new and (asks or old is None) else ()
