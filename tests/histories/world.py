"""A cloud, a hub and its clients, and the oracle: each client's expected state by the rules in force."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

from addons.rules.table import parse_rules
from kube.json_type import Json
from kube.objects.status_json import canonical
from kube.objects.status_message import CORE
from kube.store.store import Key
from tests.histories.clients import JSON, KINDS, Reflector, State, Style
from tests.histories.cloud import Cloud, version_of
from tests.histories.hub import LEADERS, Hub
from tests.histories.limits import shrink
from tests.histories.line import Link
from tests.histories.node import Node
from tests.histories.truth import NODE, rules_of, truth

MAX_REFUSALS = 4
"""The maximum of consecutive 410s that a client may get from hubs that follow the cloud; more would never end."""
PATIENCE = 150
"""Seconds after the last fault until every client must have the expected state."""
MAX_IMPATIENT = 1
"""Requests that a hub may send during a Retry-After period: a probe."""
STRATEGIC = "application/strategic-merge-patch+json"


class Finding(AssertionError):
    """A client has a wrong state, or a wrong refusal."""


class World:
    def __init__(self, folder: Path) -> None:
        self.cloud = Cloud()
        self.leaders = {
            each.address: Node(each.node, folder, self.cloud, lambda _address: None) for each in LEADERS
        }
        self.node = Node(NODE, folder, self.cloud, self._leader_at)
        self.clients: dict[str, Reflector] = {}
        self.found: list[str] = []
        """Findings that need no quiet moment."""
        self.accepted: dict[str, set[str]] = {}
        """The status, and the count of each event, that kubelet reported last, also with an unknown outcome."""
        self._posted: set[str] = set()
        """The events that kubelet has created, as far as it knows."""
        self.is_doubtful = False
        """True if clients may have seen a status that the hub lost by a kill or a damaged disk."""
        self.is_forgetful = False
        """True if a kill may have lost the cloud's state of kubelet's last report from the node's copies."""
        self.is_killed = False
        """True if the hub was killed since the last quiet moment: it may not know the last versions of clients."""
        self.was_troubled = False
        """True if a link to the cloud had a fault since the last quiet moment: a hub may have had to list again."""
        self.was_restored = False
        self.is_restored = False
        """True if the cloud was restored since the last quiet moment, which hubs may not have detected yet."""
        self.sent = 0
        self._ends: list[Callable[[], None]] = []
        self.steps = 0
        """The number of steps after which a view may refuse a version that it issued before."""

    @property
    def hub(self) -> Hub | None:
        return self.node.hub

    @property
    def causes(self) -> int:
        """See `tests.histories.clients.Judge`. The hub is notified of an edit of the rules once it can be."""
        sources = list(self.hub.parts.sources) if self.hub is not None else []
        return self.steps + self.node.edits + self.cloud.gaps_forced(sources)

    @property
    def nodes(self) -> list[Node]:
        """Return the leaders, and the node that may follow them."""
        return [*self.leaders.values(), self.node]

    def _leader_at(self, address: str) -> Hub | None:
        return None if self.node.is_split else self.leaders[address].hub

    async def pool(self, leaders: int) -> None:
        """Make the node follow this number of leaders of a pool, 0 for no pool."""
        self.node.leaders = leaders
        for leader in list(self.leaders.values())[:leaders]:
            await leader.start()
        if self.hub is not None:
            self.hub.follow(leaders)

    def come(self, name: str) -> None:
        client = self.clients.get(name)
        if client is None:
            self.clients[name] = Reflector(KINDS[name], lambda: self.hub, self)
        else:
            client.come()

    # -- the oracle -----------------------------------------------------------------------------------------------

    def refused(self, client: Reflector) -> None:
        """See `tests.histories.clients.Judge`."""
        may_be_former = self.cloud.may_be_former(client.kind.resource, client.version)
        if not (self.is_restored or self.was_troubled or client.is_lost or may_be_former):
            self.found.append(f"{client.kind.name}: refused without cause at {client.version}")

    def restore(self, *, bumped: bool) -> None:
        """Restore the cloud. The hub need not detect which of kubelet's reports it lost."""
        self.cloud.restore(bumped=bumped)
        self.is_restored = True
        for node in self.nodes:
            node.line.cut()
        for what, reported in self.accepted.items():
            reported.add(self._in_cloud(what))
        self.was_restored = True
        for client in self.clients.values():
            # A hub that missed the restore cannot recognize such a client, and neither can kube-apiserver.
            is_relayed = not self._is_cached(client.kind.component) or client.kind.style is Style.EXACT
            client.is_lost |= is_relayed or self.is_killed or not self._has_known(client)

    def _is_cached(self, component: str) -> bool:
        """Return True if none of a component's reads is relayed, by the cloud's rules and the hub's."""
        tables = [parse_rules(rules_of(self.cloud))]
        if self.hub is not None:
            tables.append(self.hub.parts.rules.rules)
        return all(each.is_cached(component) for each in tables)

    def _is_too_old(self, client: Reflector) -> bool:
        """Return True if the cloud itself would refuse a client: from a previous history, or of a view without
        bookmarks."""
        is_relayed = not self._is_cached(client.kind.component)
        is_refused = is_relayed and int(client.version or 0) < self.cloud.oldest(client.kind.resource)
        return client.is_lost or is_refused

    def _has_known(self, client: Reflector) -> bool:
        """Return True if a copy on the node reached a client's version by events or a list. A relayed list may be
        newer."""
        if self.hub is None:
            return False
        resource, version = client.kind.resource, int(client.version or 0)
        running = {each.list_watch: each.store for each in self.hub.parts.sources if each.store.complete}
        stores = (store for each, store in running.items() if each.type.resource == resource)
        if any(version <= each.newest_given and not each.history.is_in_gap(version) for each in stores):
            return True
        copies = self.hub.tables.copies.list_watches("").items()
        return any(
            version <= at for each, at in copies if each not in running and each.type.resource == resource
        )

    def asked(self, client: Reflector, verb: str) -> Callable[[State], None]:
        """See `tests.histories.clients.Judge`: the list must not be older than the cloud at the request."""
        before, hub = self._versions(client, verb), self.hub

        def check(listed: State) -> None:
            if before is None or self.hub is not hub or (now := self._versions(client, verb)) is None:
                return
            held = {key: version_of(obj) for key, obj in listed.items()}
            wrong = [
                key[1]
                for key in sorted(before.keys() | now.keys() | held.keys())
                if before.get(key) == now.get(key) != held.get(key)
            ]
            if wrong:
                self.found.append(f"{client.kind.name}: an old consistent list of {', '.join(wrong)}")

        return check

    def _versions(self, client: Reflector, verb: str) -> dict[Key, int] | None:
        """Return the versions of a client's expected state; None if the hub has no cloud, or does not know the rules
        yet.
        """
        hub, rules = self.hub, rules_of(self.cloud)
        if hub is None or not hub.upstream.is_up or self.node.line.link is Link.DOWN:
            return None
        if hub.parts.rules.data() != rules:
            return None
        return {key: version_of(obj) for key, obj in truth(self.cloud, client.kind, verb).items()}

    def differences(self) -> list[str]:
        """Return the clients' differences from their expected state, and kubelet's writes that the cloud lacks."""
        found = []
        for name, client in self.clients.items():
            if client.is_lost or (self.is_doubtful and client.kind.resource == "nodes"):
                continue
            true = truth(self.cloud, client.kind)
            for key in sorted(true.keys() | client.state.keys()):
                wanted, held = true.get(key), client.state.get(key)
                if wanted != held:
                    found.append(f"{name}: {_said(key[1], held, wanted)}")
        return found + self._unwritten()

    def _unwritten(self) -> list[str]:
        return [
            f"lost: {what} is {self._in_cloud(what)} in the cloud, kubelet's last was {' or '.join(reported)}"
            for what, reported in self.accepted.items()
            if self._in_cloud(what) not in reported
        ]

    def _in_cloud(self, what: str) -> str:
        """Return a report of kubelet in the cloud."""
        if what == "status":
            return str(self.cloud.objects("nodes")["", NODE]["status"]["conditions"][0]["message"])
        return str(self.cloud.objects("events").get(("default", what), {}).get("count", "nothing"))

    async def settle(self) -> None:
        """Let everything catch up with a cloud without faults; raises Finding for a difference."""
        await self.node.recover()
        for number, leader in enumerate(self.leaders.values()):
            if leader.hub is not None or number < self.node.leaders:
                await leader.recover()
        for client in self.clients.values():
            client.read(True)
            client.come()
        for second in range(PATIENCE):
            if second % 60 == 59:
                await self._remind()
            await asyncio.sleep(1)
            self.check_refusals()
            if second >= 2 and self._follows() and not self.differences():
                break
        assert self.hub is not None
        wrong = self.differences() + self.found + self.hub.failures
        if not self._follows():
            wrong.append("a source does not follow the cloud")
        for node in self.nodes:
            if node.line.impatient > MAX_IMPATIENT:
                wrong.append(f"impatient: {node.name} asked {node.line.impatient} times before it should")
        if wrong:
            raise Finding("; ".join(wrong))
        self.is_restored = self.is_killed = self.was_troubled = False
        await self._resume()

    def _follows(self) -> bool:
        """True if both hubs have received all changes of the cloud."""
        return all(node.hub is None or node.hub.follows for node in self.nodes)

    async def _resume(self) -> None:
        """Check that no client is refused a version that was given, if nothing has happened since."""
        await self._remind()
        await asyncio.sleep(1)
        # A client of a previous history may have waited at kube-apiserver until now.
        given = {name: each.version for name, each in self.clients.items() if not self._is_too_old(each)}
        for client in self.clients.values():
            client.refusals = 0
            client.go()
        await asyncio.sleep(0.1)
        for client in self.clients.values():
            client.come()
        await asyncio.sleep(2)
        refused = [f"{name} at {version}" for name, version in given.items() if self.clients[name].refusals]
        if refused or self.differences():
            raise Finding(
                "; ".join([*(f"refused without cause: {each}" for each in refused), *self.differences()])
            )

    async def _remind(self) -> None:
        """Send bookmarks, as within minutes: the cloud to the leader, the leader to the node, the node to clients."""
        for node in self.nodes:
            node.line.mark()
            await asyncio.sleep(0.1)
            node.remind()
            await asyncio.sleep(0.1)

    def check_refusals(self) -> None:
        """Raise Finding if a client gets 410 again and again."""
        # A leader's history may start after the version of another leader's client.
        is_well = all(node.line.link is Link.UP for node in self.nodes)
        if self.is_restored and self.node.line.link is Link.CLOSED:
            # A refused partial source is closed, and the next one cannot report deletions since the restore.
            for client in self.clients.values():
                client.is_lost |= client.kind.is_part
        self.was_troubled |= not is_well or bool(self.node.leaders)
        follows = self._follows()
        for name, client in self.clients.items():
            client.refusals *= follows
            if client.refusals > MAX_REFUSALS:
                raise Finding(f"{name}: 410 for ever")

    # -- kubelet's writes ---------------------------------------------------------------------------------------

    async def write_status(self, value: str) -> None:
        """Report a status of the node like kubelet, and record it if it was accepted."""
        target, body = f"/api/v1/nodes/{NODE}/status", {"status": status_of(value)}
        self._report("status", value, await self._write("PATCH", target, body, STRATEGIC))

    async def write_event(self, name: str, count: int) -> None:
        """Report an event with this count."""
        path = "/api/v1/namespaces/default/events"
        status = 404
        if name in self._posted:
            status = await self._write("PATCH", f"{path}/{name}", {"count": count}, STRATEGIC)
        if status == 404:
            metadata = {"name": name, "namespace": "default"}
            event = {"apiVersion": "v1", "kind": "Event", "metadata": metadata, "count": count}
            status = await self._write("POST", path, event, JSON)
            if status in (201, 409):
                self._posted.add(name)
        self._report(name, str(count), status)

    def _report(self, what: str, value: str, status: int) -> None:
        """Record the outcome of a report: without a success, or a disk that stores it, it may or may not persist."""
        if status in (200, 201) and (self.node.keeps or self._in_cloud(what) == value):
            # A restored cloud may lack the event whose later count the hub received.
            forgot = self.was_restored and self._in_cloud(what) == "nothing"
            self.accepted[what] = {"nothing"} if forgot else set()
            self.is_forgetful &= what != "status"
        if status == 200 and what == "status" and not self.node.keeps:
            self.is_doubtful = True
        self.accepted.setdefault(what, {"nothing", "0"}).add(value)

    async def _write(self, method: str, target: str, body: Json, content_type: str) -> int:
        """Return the status of the response; 0 for none."""
        if self.hub is None:
            return 0
        exchange = self.hub.ask(
            "kubelet",
            target,
            method=method,
            headers={"Accept": JSON, "Content-Type": content_type},
            body=json.dumps(body).encode(),
        )
        try:
            async with asyncio.timeout(20):
                return await exchange.status
        except (TimeoutError, ConnectionError):
            return 0

    async def read_node(self) -> None:
        """Read the node as kubelet does. In an outage the hub answers with its last state."""
        if self.hub is None or self.hub.upstream.is_up or self.is_forgetful or self.is_restored:
            return
        exchange = self.hub.ask("kubelet", f"/api/v1/nodes/{NODE}")
        try:
            async with asyncio.timeout(20):
                status, body = await exchange.status, await exchange.read_body()
        except (TimeoutError, ConnectionError):
            return
        reported = self.accepted.get("status")
        if status == 200 and reported and self._has_heard_of_node():
            got = json.loads(body)["status"]["conditions"][0]["message"]
            if got not in reported:
                self.found.append(f"kubelet reads its status {got}, its last was {' or '.join(reported)}")

    def _has_heard_of_node(self) -> bool:
        """Return True if the hub has the cloud's last write of the node: the watch may have ended before it."""
        assert self.hub is not None
        stores = [each.store for each in self.hub.parts.sources if each.list_watch.type.resource == "nodes"]
        written = version_of(self.cloud.objects("nodes")["", NODE])
        return not stores or any(each.version >= written for each in stores)

    async def kill(self) -> None:
        """Kill the node's hub; its latest changes of copies are lost."""
        self.is_forgetful = self.is_killed = True
        self._part()
        await self.node.kill()

    async def stop(self) -> None:
        """End the node's hub in order."""
        self._part()
        await self.node.stop()

    def damage(self) -> None:
        """Delete the node's disk while no hub runs."""
        if self.hub is None:
            self.node.damage()
            self.is_forgetful = self.is_killed = self.is_doubtful = True
            for what, reported in self.accepted.items():
                reported.add(self._in_cloud(what))

    def _part(self) -> None:
        """Note that the next process cannot name objects deleted since a restore."""
        for client in self.clients.values():
            client.is_lost |= self.is_restored

    def shrink(self, *groups: str) -> None:
        """Apply `tests.histories.limits.shrink` until the end of the history."""
        self._ends.append(shrink(groups))

    async def close(self) -> None:
        for end in reversed(self._ends):
            end()
        for client in self.clients.values():
            client.close()
        for node in reversed(self.nodes):
            await node.kill()


def status_of(value: str) -> Json:
    """Return a node's status with this value, and all fields that kube-apiserver would add."""
    times = dict.fromkeys(("lastHeartbeatTime", "lastTransitionTime"), "2026-01-01T00:00:00Z")
    condition = {"type": "Ready", "status": "True", **times, "reason": "Told", "message": value}
    return canonical(f"{CORE}.NodeStatus", {"conditions": [condition]})


def _said(name: str, held: Json | None, true: Json | None) -> str:
    if held is None:
        return f"a hole, {name}@{version_of(true) if true else 0}"
    if true is None:
        return f"a ghost, {name}@{version_of(held)}"
    return f"another {name}, @{version_of(held)} for @{version_of(true)}"
