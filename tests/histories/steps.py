"""The steps of a history: what each word does to a world. A history is a list of them, which a test can pin."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from addons.filters.builtin.topology import SCOPE_ANNOTATION
from kube.requests.node_pools import POOL_LABEL
from tests.histories.clients import KINDS
from tests.histories.cloud import Link
from tests.histories.hub import NODE
from tests.histories.world import World

type Step = tuple[Any, ...]
"""A word and its arguments, all of them texts and numbers."""
type History = list[Step]

TYPES = ("ClusterIP", "LoadBalancer", "NodePort")
DISCARD = {"filter_discardcloudservice": "cached/services,other/services"}
TOPOLOGY = {"filter_servicetopology": "reader/endpointslices"}
RULE_SETS: dict[str, dict[str, str]] = {
    "none": {},
    "discard": DISCARD,
    "discard plain": {"filter_discardcloudservice": "plain/services"},
    "discard watches": {"filter_discardcloudservice": "cached/services#watch"},
    "topology": TOPOLOGY,
    "both": {**DISCARD, **TOPOLOGY},
}
AGENTS = {"cache_agents": "cached,other,reader"}


def put(world: World, resource: str, name: str, variant: int) -> None:
    """Write an object in one of three variants."""
    world.sent += 1
    metadata = {"annotations": {"write": str(world.sent)}, "labels": {"app": "xy"[variant % 2]}}
    match resource:
        case "services":
            content: dict[str, Any] = {"spec": {"type": TYPES[variant]}}
        case "endpointslices":
            metadata["labels"] = {"kubernetes.io/service-name": "web"}
            nodes = ((NODE,), (NODE, "n2"), ("n2", "n3"))[variant]
            content = {
                "addressType": "IPv4",
                "endpoints": [{"addresses": ["10.0.0.1"], "nodeName": n} for n in nodes],
            }
        case "events":
            content = {"count": 1}
        case _:
            content = {"spec": {"size": variant}}
    world.cloud.put(resource, name, metadata=metadata, **content)


def annotate(world: World, near: int) -> None:
    """Let the service `web` ask for endpoints of the node's pool, or for all."""
    annotations = {SCOPE_ANNOTATION: "openyurt.io/nodepool"} if near else {}
    world.cloud.put("services", "web", metadata={"annotations": annotations}, spec={"type": TYPES[0]})


def label(world: World, pool: str) -> None:
    """Move this node to a pool; the others are in a."""
    for name in (NODE, "n2", "n3"):
        labels = {POOL_LABEL: pool if name == NODE else "a"}
        world.cloud.put("nodes", name, metadata={"labels": labels if labels[POOL_LABEL] else {}})


def rules(world: World, name: str) -> None:
    """Edit the rules."""
    world.cloud.put("configmaps", "yurt-hub-cfg", namespace="kube-system", data={**AGENTS, **RULE_SETS[name]})


def link(world: World, state: str) -> None:
    world.cloud.link = Link[state]
    world.cloud._moved.notify()


def flood(world: World, resource: str) -> None:
    """Let a resource be written whenever the node asks the cloud something; "" ends that."""
    world.cloud.floods = resource


def slow(world: World, name: str) -> None:
    if name in world.clients:
        world.clients[name].read(False)


def go(world: World, name: str) -> None:
    if name in world.clients:
        world.clients[name].go()


def sweep(world: World) -> None:
    """Let go of the views and sources that nobody uses, as after some minutes."""
    if world.hub is not None:
        sources = world.hub.parts.sources
        sources._idle, idle = -1.0, sources._idle
        sources._sweep()
        sources._idle = idle


def disk(world: World, full: int) -> None:
    if world.hub is not None:
        world.hub.disk_is_full = bool(full)


STEPS: dict[str, Callable[..., Awaitable[None] | None]] = {
    "put": put,
    "delete": lambda world, resource, name: world.cloud.delete(resource, name),
    "elsewhere": lambda world: put(world, "configmaps", "noise", 0),
    "annotate": annotate,
    "label": label,
    "rules": rules,
    "stall": lambda world, *resources: world.cloud.stall(*resources),
    "flood": flood,
    "cut": lambda world: world.cloud.cut(),
    "compact": lambda world: world.cloud.compact(),
    "bookmarks": lambda world: world.cloud.mark(),
    "link": link,
    "back up": lambda world: world.cloud.back_up(),
    "restore": lambda world, bumped: world.restore(bumped=bool(bumped)),
    "kill": World.kill,
    "stop": World.stop,
    "start": World.start,
    "disk": disk,
    "come": World.come,
    "go": go,
    "slow": slow,
    "sweep": sweep,
    "status": World.write_status,
    "event": World.write_event,
    "read node": World.read_node,
    "wait": lambda world, seconds: asyncio.sleep(seconds),
    "settle": World.settle,
}


CAUSES = frozenset({"compact", "restore", "kill", "stop", "rules", "sweep", "link", "slow"})
"""The steps after which a version may be refused that was given before."""


async def take(world: World, step: Step) -> None:
    """Take one step, and let what it causes begin."""
    world.causes += step[0] in CAUSES
    done = STEPS[step[0]](world, *step[1:])
    if done is not None:
        await done
    await asyncio.sleep(0.01)


def made_up(chance: random.Random, length: int) -> History:
    """A history by chance."""
    names = list(KINDS)
    coming = chance.sample(names, chance.randint(2, 8))
    history: History = [("rules", chance.choice(list(RULE_SETS))), *(("come", name) for name in coming)]
    history += [("wait", chance.choice((0, 0.1, 3)))]
    while len(history) < length:
        history.append(_step(chance, coming))
    return history


def _step(chance: random.Random, names: list[str]) -> Step:
    word = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    match word:
        case "put":
            resource = chance.choice(
                ("services", "services", "services", "endpointslices", "events", "widgets", "nodes")
            )
            return word, resource, chance.choice("abc"), chance.randrange(3)
        case "delete":
            return (
                word,
                chance.choice(("services", "services", "endpointslices", "events", "widgets")),
                chance.choice("abc"),
            )
        case "annotate" | "restore" | "disk":
            return word, chance.randrange(2)
        case "stall":
            return word, *chance.choice(
                ((), ("services",), ("endpointslices", "nodes"), ("services", "configmaps"), ("events",))
            )
        case "flood":
            return word, chance.choice(("services", "", ""))
        case "label":
            return word, chance.choice(("a", "b", ""))
        case "rules":
            return word, chance.choice(list(RULE_SETS))
        case "link":
            return word, chance.choice([each.name for each in Link])
        case "come" | "go" | "slow":
            return word, chance.choice(names)
        case "status":
            return word, chance.choice("123")
        case "event":
            return word, chance.choice(("e1", "e2")), chance.randint(1, 9)
        case "wait":
            return word, chance.choice((0.1, 0.3, 1, 3, 12))
    return (word,)


WEIGHTS = {
    "put": 30,
    "delete": 14,
    "elsewhere": 4,
    "annotate": 3,
    "label": 3,
    "rules": 5,
    "stall": 6,
    "flood": 1,
    "cut": 5,
    "compact": 4,
    "bookmarks": 3,
    "link": 8,
    "back up": 3,
    "restore": 2,
    "kill": 3,
    "stop": 2,
    "start": 5,
    "disk": 2,
    "come": 12,
    "go": 8,
    "slow": 3,
    "sweep": 2,
    "status": 5,
    "event": 4,
    "read node": 3,
    "wait": 25,
    "settle": 1,
}
"""How often each step comes, of all of them together."""
