"""A cloud, a hub and its clients, and the oracle: what each client must hold of the cloud by the rules in force."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable
from pathlib import Path

from addons.filters.builtin.topology import SCOPE_ANNOTATION
from addons.rules.table import parse_rules
from kube.json_type import Json
from kube.requests.node_pools import POOL_LABEL
from tests.histories.clients import JSON, KINDS, Kind, Reflector, State
from tests.histories.cloud import RESOURCES, Cloud, Link, key_of, version_of
from tests.histories.hub import NODE, Hub

MAX_REFUSALS = 4
"""Times that a client may get 410 in a row: more is for ever."""
PATIENCE = 150
"""Seconds in which everything must catch up once nothing is wrong any more."""
STRATEGIC = "application/strategic-merge-patch+json"
RULES = "kube-system", "yurt-hub-cfg"


class Finding(AssertionError):
    """A client holds what it must not, or was refused what it must get."""


class World:
    """One history under way."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.cloud = Cloud()
        self.hub: Hub | None = None
        self.clients: dict[str, Reflector] = {}
        self.found: list[str] = []
        """What was wrong at once, and need not wait for a quiet moment."""
        self.accepted: dict[str, set[str]] = {}
        """The status, and the count of each event, that kubelet reported last; also those that may have been taken."""
        self.sent = 0
        self.causes = 0
        """How much has happened for which a version may be refused that was given before."""

    # -- the node -------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        if self.hub is None:
            hub = Hub(self._folder, self.cloud)
            await hub.start()
            self.hub = hub

    async def stop(self) -> None:
        if self.hub is not None:
            hub, self.hub = self.hub, None
            await hub.stop()

    async def kill(self) -> None:
        if self.hub is not None:
            hub, self.hub = self.hub, None
            await hub.kill()

    def come(self, name: str) -> None:
        client = self.clients.get(name)
        if client is None:
            self.clients[name] = Reflector(KINDS[name], lambda: self.hub, self)
        else:
            client.come()

    # -- the oracle -----------------------------------------------------------------------------------------------

    def truth(self, kind: Kind) -> State:
        """What the cloud has of what a client follows, through the rules in force."""
        data = self.cloud.objects("configmaps").get(RULES, {}).get("data")
        group = RESOURCES[kind.resource].api_version.rpartition("/")[0]
        chain = parse_rules(data).chain(kind.component, group, kind.resource, "watch")
        filters = {each.name for each in chain}
        found = {}
        for key, obj in self.cloud.objects(kind.resource).items():
            shown = self._filtered(obj, filters)
            if shown is not None and _selects(kind, obj):
                found[key] = shown
        return found

    def _filtered(self, obj: Json, filters: set[str]) -> Json | None:
        if "discardcloudservice" in filters and obj["spec"].get("type") == "LoadBalancer":
            return None
        if "servicetopology" in filters:
            service = self.cloud.objects("services").get(("default", "web"), {"metadata": {}})
            if SCOPE_ANNOTATION in service["metadata"].get("annotations", {}):
                obj = copy.deepcopy(obj)
                obj["endpoints"] = [each for each in obj["endpoints"] if self._is_near(each["nodeName"])]
        return obj

    def _is_near(self, node: str) -> bool:
        """Whether a node is in the pool of this one."""
        nodes = self.cloud.objects("nodes")
        pools = {
            name: obj["metadata"].get("labels", {}).get(POOL_LABEL, "") for (_, name), obj in nodes.items()
        }
        return not pools.get(NODE) or pools.get(node) == pools[NODE]

    def refused(self, client: Reflector) -> None:
        """As `tests.histories.clients.Judge`."""
        self.found.append(f"{client.kind.name}: refused without cause at {client.version}")

    def restore(self, *, bumped: bool) -> None:
        """Restore the cloud. What it forgot of kubelet's reports nobody has to know."""
        self.cloud.restore(bumped=bumped)
        self.accepted.clear()
        for client in self.clients.values():
            client.is_lost |= client.kind.component == "plain"

    def asked(self, client: Reflector) -> Callable[[State], None]:
        """As `tests.histories.clients.Judge`: the list is not older than the cloud when it was asked for."""
        before, hub = self.truth(client.kind), self.hub
        is_up = self.cloud.link is not Link.DOWN and hub is not None and hub.upstream.is_up

        def check(listed: State) -> None:
            if not is_up or self.cloud.link is Link.DOWN or self.hub is not hub:
                return
            now = self.truth(client.kind)
            wrong = [
                str(key)
                for key in before.keys() | now.keys() | listed.keys()
                if before.get(key) == now.get(key) != listed.get(key)
            ]
            if wrong:
                self.found.append(f"{client.kind.name}: an old consistent list: {wrong}")

        return check

    def differences(self) -> list[str]:
        """What clients hold that they must not, or lack; and what the cloud lacks of what kubelet wrote."""
        found = []
        for name, client in self.clients.items():
            if client.is_lost:
                continue
            truth = self.truth(client.kind)
            for key in sorted(truth.keys() | client.state.keys()):
                if truth.get(key) != client.state.get(key):
                    found.append(f"{name}: {_said(key[1], client.state.get(key), truth.get(key))}")
        return found + self._unwritten()

    def _unwritten(self) -> list[str]:
        found = []
        for what, reported in self.accepted.items():
            if what == "status":
                cloud = self.cloud.objects("nodes").get(("", NODE), {})
                conditions = cloud.get("status", {}).get("conditions", [{}])
                got = conditions[0].get("message", "")
            else:
                event = self.cloud.objects("events").get(("default", what), {})
                got = str(event.get("count", "nothing"))
            if got not in reported:
                found.append(
                    f"lost: {what} is {got} in the cloud, kubelet's last was {' or '.join(reported)}"
                )
        return found

    async def settle(self) -> None:
        """Let everything catch up with a cloud that nothing is wrong with; Finding where it does not."""
        cloud = self.cloud
        cloud.link = Link.UP
        cloud.stall()
        cloud.floods = ""
        await self.start()
        assert self.hub is not None
        self.hub.disk_is_full = False
        for client in self.clients.values():
            client.read(True)
            client.come()
        for second in range(PATIENCE):
            if second % 60 == 59:
                cloud.mark()
            await asyncio.sleep(1)
            self._check_refusals()
            if second >= 2 and not self.differences():
                break
        wrong = self.differences() + self.found
        if wrong:
            raise Finding("; ".join(wrong))
        await self._resume()

    async def _resume(self) -> None:
        """Nobody is refused a version that was given, when nothing has happened since."""
        self.cloud.mark()
        assert self.hub is not None
        self.hub.parts.sources._remind()
        await asyncio.sleep(1)
        given = {name: client.version for name, client in self.clients.items()}
        for client in self.clients.values():
            client.refusals = 0
            client.go()
        await asyncio.sleep(0.1)
        for client in self.clients.values():
            client.come()
        await asyncio.sleep(2)
        refused = [f"{name} at {given[name]}" for name, client in self.clients.items() if client.refusals]
        if refused or self.differences():
            raise Finding(
                "; ".join([*(f"refused without cause: {each}" for each in refused), *self.differences()])
            )

    def _check_refusals(self) -> None:
        for name, client in self.clients.items():
            if client.refusals > MAX_REFUSALS:
                raise Finding(f"{name}: 410 for ever")

    # -- what kubelet writes --------------------------------------------------------------------------------------

    async def write_status(self, value: str) -> None:
        """Report a status of the node, as kubelet does, and remember it where it was taken."""
        condition = {"type": "Ready", "status": "True", "message": value}
        target, body = f"/api/v1/nodes/{NODE}/status", {"status": {"conditions": [condition]}}
        self._report("status", value, await self._write("PATCH", target, body, STRATEGIC))

    async def write_event(self, name: str, count: int) -> None:
        """Report that something happened, or that it happened again."""
        path = "/api/v1/namespaces/default/events"
        if "nothing" in self.accepted.get(name, {"nothing"}):
            metadata = {"name": name, "namespace": "default"}
            event = {"apiVersion": "v1", "kind": "Event", "metadata": metadata, "count": count}
            status = await self._write("POST", path, event, JSON)
        else:
            status = await self._write("PATCH", f"{path}/{name}", {"count": count}, STRATEGIC)
        self._report(name, str(count), status)

    def _report(self, what: str, value: str, status: int) -> None:
        """Note what became of a report: without a yes it may still reach the cloud."""
        if status in (200, 201):
            self.accepted[what] = set()
        self.accepted.setdefault(what, {"nothing", "0"}).add(value)

    async def _write(self, method: str, target: str, body: Json, content_type: str) -> int:
        """The status of the answer; 0 for none."""
        if self.hub is None:
            return 0
        exchange = self.hub.ask(
            "kubelet", target, method=method, body=json.dumps(body).encode(), content_type=content_type
        )
        try:
            async with asyncio.timeout(20):
                return await exchange.status
        except (TimeoutError, ConnectionError):
            return 0

    async def read_node(self) -> None:
        """Read the node as kubelet does: what it gets is the newest that it was given or has written."""
        if self.hub is None:
            return
        exchange = self.hub.ask("kubelet", f"/api/v1/nodes/{NODE}")
        try:
            async with asyncio.timeout(20):
                status, body = await exchange.status, await exchange.whole()
        except (TimeoutError, ConnectionError):
            return
        reported = self.accepted.get("status")
        if status == 200 and reported:
            got = json.loads(body)["status"]["conditions"][0]["message"]
            if got not in reported:
                self.found.append(f"kubelet reads its status {got}, its last was {' or '.join(reported)}")

    async def close(self) -> None:
        for client in self.clients.values():
            client.close()
        await self.kill()


def _selects(kind: Kind, obj: Json) -> bool:
    if kind.selector.startswith("fieldSelector"):
        return key_of(obj)[1] == NODE
    return not kind.selector or obj["metadata"].get("labels", {}).get("app") == "x"


def _said(name: str, held: Json | None, true: Json | None) -> str:
    if held is None:
        return f"a hole, {name}@{version_of(true) if true else 0}"
    if true is None:
        return f"a ghost, {name}@{version_of(held)}"
    return f"another {name}, @{version_of(held)} for @{version_of(true)}"
