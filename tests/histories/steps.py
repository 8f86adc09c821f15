"""The steps of a history, each with its effect on a world. A history is a list of steps, which a test can pin."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from addons.filters.builtin.topology import SCOPE_ANNOTATION
from kube.requests.node_pools import POOL_LABEL
from tests.histories.clients import KINDS
from tests.histories.limits import LIMITS
from tests.histories.line import Link
from tests.histories.node import Node
from tests.histories.truth import NODE
from tests.histories.world import World

type Step = tuple[str, ...]
"""A step's name and arguments. A node's step may begin with `leader:` or `second:`, so that a leader executes it."""
type History = list[Step]

LEADERS = "leader:", "second:"
TYPES = ("ClusterIP", "LoadBalancer", "NodePort")
DISCARD = {"filter_discardcloudservice": "cached/services,other/services"}
TOPOLOGY = {"filter_servicetopology": "reader/endpointslices"}
RULE_SETS: dict[str, dict[str, str]] = {
    "none": {},
    "discard": DISCARD,
    "discard-plain": {"filter_discardcloudservice": "plain/services"},
    "discard-watches": {"filter_discardcloudservice": "cached/services#watch"},
    "topology": TOPOLOGY,
    "both": {**DISCARD, **TOPOLOGY},
    "uncached": {"cache_agents": "reader"},
    "uncached-discard": {"cache_agents": "reader", **DISCARD},
}
AGENTS = {"cache_agents": "cached,other,reader"}


def put(world: World, resource: str, name: str, variant: str) -> None:
    """Write an object in one of three variants."""
    number = int(variant)
    world.sent += 1
    metadata = {"annotations": {"write": str(world.sent)}, "labels": {"app": "xy"[number % 2]}}
    match resource:
        case "services":
            content: dict[str, Any] = {"spec": {"type": TYPES[number]}}
        case "endpointslices":
            metadata["labels"] = {"kubernetes.io/service-name": "web"}
            nodes = ((NODE,), (NODE, "n2"), ("n2", "n3"))[number]
            content = {
                "addressType": "IPv4",
                "endpoints": [{"addresses": ["10.0.0.1"], "nodeName": node} for node in nodes],
            }
        case "events":
            content = {"count": 1}
        case _:
            content = {"spec": {"size": number}}
    world.cloud.put(resource, name, metadata=metadata, **content)


def annotate(world: World, near: str) -> None:
    """Restrict the service `web` to endpoints of the node's pool, or allow all."""
    annotations = {SCOPE_ANNOTATION: "openyurt.io/nodepool"} if int(near) else {}
    world.cloud.put("services", "web", metadata={"annotations": annotations}, spec={"type": TYPES[0]})


def label(world: World, pool: str = "") -> None:
    """Move this node to a pool; the others are in pool a."""
    for name in (NODE, "n2", "n3"):
        found = pool if name == NODE else "a"
        world.cloud.put("nodes", name, metadata={"labels": {POOL_LABEL: found} if found else {}})


def rules(world: World, name: str) -> None:
    data = {**AGENTS, **RULE_SETS[name]}
    world.cloud.put("configmaps", "yurt-hub-cfg", namespace="kube-system", data=data)


def slow(world: World, name: str) -> None:
    if name in world.clients:
        world.clients[name].read(False)


def go(world: World, name: str) -> None:
    if name in world.clients:
        world.clients[name].go()


def latency(node: Node, seconds: str) -> None:
    """Delay each request by this time, so that later steps happen meanwhile."""
    node.line.latency = float(seconds)


def flood(node: Node, resource: str = "") -> None:
    """Write a resource whenever the node sends the cloud a request."""
    node.line.floods = resource


STEPS: dict[str, Callable[..., Awaitable[None] | None]] = {
    "put": put,
    "delete": lambda world, resource, name: world.cloud.delete(resource, name),
    "elsewhere": lambda world: put(world, "configmaps", "noise", "0"),
    "annotate": annotate,
    "label": label,
    "rules": rules,
    "compact": lambda world: world.cloud.compact(),
    "backup": lambda world: world.cloud.back_up(),
    "restore": lambda world, bumped: world.restore(bumped=bool(int(bumped))),
    "pool": lambda world, is_in_pool: world.pool(int(is_in_pool)),
    "come": World.come,
    "go": go,
    "slow": slow,
    "status": World.write_status,
    "event": lambda world, name, count: world.write_event(name, int(count)),
    "read": World.read_node,
    "damage": World.damage,
    "wait": lambda _world, seconds: asyncio.sleep(float(seconds)),
    "settle": World.settle,
    "small": World.shrink,
    "seed": lambda _world, number: random.seed(int(number)),
}
OF_NODE: dict[str, Callable[..., Awaitable[None] | None]] = {
    "stall": lambda node, *resources: node.line.stall(*resources),
    "flood": flood,
    "latency": latency,
    "cut": lambda node: node.line.cut(),
    "end": lambda node: node.line.end(),
    "split": lambda node, is_split: node.split(bool(int(is_split))),
    "bookmarks": lambda node: node.line.mark(),
    "link": lambda node, state: node.line.set(Link[state]),
    "kill": Node.kill,
    "stop": Node.stop,
    "start": Node.start,
    "disk": Node.set_disk,
    "sweep": Node.sweep,
    "remind": Node.remind,
}
CAUSES = frozenset({"compact", "restore", "kill", "stop", "rules", "sweep", "link", "slow", "pool"})
"""The steps after which an issued version may be refused."""


async def take(world: World, step: Step) -> None:
    """Execute one step, and let its effects start. Raises Finding for an immediate violation."""
    who, _, action = step[0].rpartition(":")
    node = world.nodes[LEADERS.index(f"{who}:")] if who else world.node
    world.steps += action in CAUSES
    if step[0] in ("kill", "stop"):
        done: Awaitable[None] | None = world.kill() if action == "kill" else world.stop()
    elif action in OF_NODE:
        done = OF_NODE[action](node, *step[1:])
    else:
        done = STEPS[action](world, *step[1:])
    if done is not None:
        await done
    await asyncio.sleep(0.01)
    world.check_refusals()


RESOURCES = ["services", "services", "services", "endpointslices", "events", "widgets", "nodes"]
CHOICES: dict[str, tuple[str, ...]] = {
    "annotate": ("0", "1"),
    "label": ("a", "b", ""),
    "rules": tuple(RULE_SETS),
    "restore": ("0", "1"),
    "split": ("0", "1"),
    "disk": ("0", "1", "slow"),
    "stall": ("", "services", "endpointslices nodes", "services configmaps", "events", "nodes"),
    "flood": ("services", "", ""),
    "latency": ("0.002", "0.2", "1"),
    "link": tuple(each.name for each in Link),
    "status": tuple("123"),
    "event": ("e1 1", "e1 2", "e1 3", "e2 4", "e2 5"),
    "pool": ("0", "1", "2"),
    "wait": (*(("0.1", "0.3", "1", "3", "12") * 5), "60", "400"),
}
"""Possible arguments of a step; none for steps that are not listed."""
OFTEN = """
put 30, delete 14, elsewhere 4, annotate 3, label 3, rules 5, stall 6, flood 1, cut 5, end 3, split 3, compact 4,
latency 4, bookmarks 12, link 8, backup 3, restore 2, kill 3, stop 2, damage 1, start 5, disk 2, come 12, go 8, slow 3,
sweep 2, remind 3, status 5, event 4, read 3, pool 2, wait 25, settle 1"""
"""The relative frequency of each step."""
WEIGHTS = {action: int(weight) for action, weight in (each.split() for each in OFTEN.split(","))}


def made_up(chance: random.Random, most: int) -> History:
    """Return a random history of at most `most` steps. A third of them have a pool."""
    coming = chance.sample(list(KINDS), chance.randint(2, 8))
    history: History = [("rules", chance.choice(list(RULE_SETS)))]
    has_pool = not chance.randrange(3)
    if has_pool:
        history.append(("pool", chance.choice("12")))
    if chance.randrange(2):
        history.append(("small", *chance.sample(list(LIMITS), chance.randint(1, len(LIMITS)))))
    history += [("come", name) for name in coming]
    history.append(("wait", chance.choice(CHOICES["wait"])))
    length = chance.randint(10, most)
    while len(history) < length:
        history.append(_made_up_step(chance, coming, has_pool))
    return history


def _made_up_step(chance: random.Random, coming: list[str], has_pool: bool) -> Step:
    action = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    match action:
        case "put":
            return action, chance.choice(RESOURCES), chance.choice("abc"), chance.choice("012")
        case "delete":
            return action, chance.choice(RESOURCES[:-1]), chance.choice("abc")
        case "come" | "go" | "slow":
            return action, chance.choice(coming)
    who = chance.choice(("", *LEADERS)) if has_pool and action in OF_NODE else ""
    arguments = chance.choice(CHOICES[action]).split() if action in CHOICES else ()
    return f"{who}{action}", *arguments
