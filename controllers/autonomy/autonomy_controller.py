"""Keeps the pods of an autonomous node where they are, and ready, while the cloud does not hear the node.

It only prepares. kube-controller-manager evicts by the tolerations that the pods have then, and an admission policy of
the API server (autonomy-endpoints.yaml) leaves the pods ready of the nodes that a ConfigMap names. An API server
without such policies asks the manager's webhook, which goes by the same ConfigMap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime

from controllers.autonomy.node_autonomy import (
    REVIEW_PATH,
    Autonomy,
    keep_ready,
    read_autonomy,
    toleration_patch,
)
from controllers.cluster.nodes import NODES, Node
from controllers.cluster.pods import PODS, Pod
from controllers.runtime.controller import Context, Controller, own_key
from controllers.runtime.informer import one_object
from controllers.runtime.unstructured import texts, timestamp
from kube.errors import StatusError
from kube.json_type import Json
from kube.requests.request_info import ResourceType
from kube.store.store import Key

CONFIG_MAPS = ResourceType("", "v1", "configmaps")
CONFIG_MAP = "edgehub-manager-autonomy"
"""The parameter of the admission policy, of autonomy.yaml: the names of nodes whose pods stay ready."""
CONDITION = "Autonomy"
AUTONOMOUS, OVER, INVALID = "NodeAutonomous", "AutonomyOver", "InvalidAutonomyDuration"
"""Reasons of the condition."""
OVER_INTERVAL = 5.0
"""Seconds between two looks for autonomies that are over, as often as the node lifecycle controller looks at nodes."""


class AutonomyController(Controller):
    """Key: a node."""

    name = "autonomy"
    workers = 4
    debounce = 0.1

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._nodes = self.watch(NODES, own_key)
        self._pods = self.watch(PODS, self._node_of)
        held = one_object(
            CONFIG_MAPS, context.settings.namespace, CONFIG_MAP, lambda obj: texts(obj.get("data"))
        )
        self._configs = self.watch(held, _nodes_named)
        context.reviews[REVIEW_PATH] = lambda body: keep_ready(body, self._held())

    async def reconcile(self, key: Key) -> None:
        node = self._nodes.get(key) or Node(key[1])
        autonomy = read_autonomy(node.annotations)
        granted = None if autonomy is None or autonomy.error else autonomy
        refused = await self._set_tolerations(node, granted)
        is_over = granted is not None and granted.is_over(node.unheard_since, datetime.now(UTC))
        await self._hold(node, None if is_over else granted)
        if node.uid:
            await self._set_condition(node, autonomy, is_over)
        if refused is not None:
            raise refused

    async def _set_tolerations(self, node: Node, autonomy: Autonomy | None) -> StatusError | None:
        """The last error of a pod that could not be patched, which holds up no other pod."""
        refused, default = None, self._context.settings.default_toleration
        for _, pod in self._pods.by_index("node", node.name):
            patch = toleration_patch(pod, node, autonomy, default)
            if not patch:
                continue
            try:
                await self.patch(self._pods, (pod.namespace, pod.name), patch)
            except StatusError as error:
                refused = error if error.code != 404 else refused
        return refused

    async def _hold(self, node: Node, autonomy: Autonomy | None) -> None:
        """Have the policy leave the pods of the node ready, or let go of them.

        Pods of a node that nobody hears are made unready first, as without autonomy: kube-controller-manager does so
        but once, when the node goes.
        """
        wanted = None if autonomy is None else str(autonomy)
        if self._held().get(node.name) == wanted:
            return
        if wanted is None and node.unheard_since:
            for _, pod in self._pods.by_index("node", node.name):
                if pod.ready:
                    await self._make_unready(pod)
        key = (self._context.settings.namespace, CONFIG_MAP)
        await self.patch(self._configs, key, {"data": {node.name: wanted}})

    def _held(self) -> dict[str, str]:
        """The data of the ConfigMap."""
        return self._configs.get((self._context.settings.namespace, CONFIG_MAP)) or {}

    async def _make_unready(self, pod: Pod) -> None:
        condition = {"type": "Ready", "status": "False", "lastTransitionTime": timestamp(datetime.now(UTC))}
        status: Json = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"namespace": pod.namespace, "name": pod.name, "resourceVersion": pod.version},
            "status": {"conditions": [condition]},
        }
        try:
            await self._context.api.apply(PODS.type, status, "status")
        except StatusError as error:
            if error.code != 404:
                raise

    async def _set_condition(self, node: Node, autonomy: Autonomy | None, is_over: bool) -> None:
        wanted = _condition(autonomy, is_over)
        if node.autonomy == wanted or (
            wanted is None and node.autonomy[1] not in (AUTONOMOUS, OVER, INVALID)
        ):
            return
        named = ("status", "reason", "message")
        conditions = []
        if wanted is not None:
            given = dict(zip(named, wanted, strict=True))
            conditions = [{"type": CONDITION, "lastTransitionTime": timestamp(datetime.now(UTC)), **given}]
        status: Json = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": node.name, "uid": node.uid},
            "status": {"conditions": conditions},
        }
        await self.apply(self._nodes, status, "status")

    async def watch_the_clock(self) -> None:
        while True:
            await asyncio.sleep(OVER_INTERVAL)
            now = datetime.now(UTC)
            for key, node in self._nodes.items():
                autonomy = read_autonomy(node.annotations) if node.unheard_since else None
                if (
                    autonomy is not None
                    and node.autonomy[1] == AUTONOMOUS
                    and autonomy.is_over(node.unheard_since, now)
                ):
                    self.queue.add(key)

    def _node_of(self, _key: Key, old: Pod | None, new: Pod | None) -> Iterable[Key]:
        """The node of a pod that is new there, or changed, where it has to do with autonomy."""
        if new is None or old == new:
            return ()
        node = self._nodes.get(("", new.node))
        is_autonomous = node is not None and read_autonomy(node.annotations) is not None
        return (("", new.node),) if is_autonomous or new.records else ()


def _nodes_named(_key: Key, old: dict[str, str] | None, new: dict[str, str] | None) -> Iterable[Key]:
    """The nodes whose entry changed."""
    before, after = old or {}, new or {}
    return [("", name) for name in before.keys() | after.keys() if before.get(name) != after.get(name)]


def _condition(autonomy: Autonomy | None, is_over: bool) -> tuple[str, str, str] | None:
    """Status, reason and message; None for no condition."""
    if autonomy is None:
        return None
    if autonomy.error:
        return "False", INVALID, autonomy.error
    if is_over:
        return "False", OVER, f"nobody has heard the node for longer than {autonomy}: its pods are evicted"
    return "True", AUTONOMOUS, f"pods stay {autonomy} while nobody hears the node"
