"""The table of all hubs of a cluster. Each hub writes its status to an annotation of its node's Lease, which it renews
anyway. The table lists the hubs that need attention first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from typing import Any

import orjson

from kube.errors import StatusError
from kube.http.client import Client, Unreachable
from kube.json_type import Json
from kube.reflector.list_pages import Malformed, read_pages
from kube.requests.node_pools import NODEPOOL_TYPE
from kube.requests.request_info import ResourceType
from kube.tables.cells import human_duration, parse_time, size
from kube.wire.json_fields import parse_object

HUBS_INSTALLED = "HubsInstalled"
"""The NodePool condition by which the manager reports how many nodes have their hubs installed."""
ANNOTATION = "edgehub.io/hub-status"
"""The annotation of a node's Lease: a `HubStatus` as JSON."""
LONGEST = 1024
"""The most bytes of the annotation that are read, because a node can write any text to its Lease."""


@dataclass(frozen=True, slots=True)
class HubStatus:
    """The status of one hub. Times are seconds since the epoch, 0 for none."""

    version: str = ""
    pool: str = ""
    via: str = ""
    """The cloud server that the hub uses, or the node whose uplink it uses."""
    since: int = 0
    """When the link to the cloud last came up."""
    stale: int = 0
    """The number of copies that do not follow the cloud now."""
    oldest: int = 0
    """When the cloud last sent data for the stale copy that has waited longest."""
    waiting: int = 0
    """The number of writes that wait to be replayed to the cloud."""
    problems: int = 0
    """The number of faults in the hub's configuration: invalid rules, filters that fail to load, closed listeners."""
    up: int = 0
    """Bytes sent to the cloud today."""
    down: int = 0
    """Bytes received from the cloud today."""
    rollback: str = ""
    """The version whose upgrade failed on this node and was rolled back, and why; "" if the last upgrade succeeded."""

    def dump(self) -> str:
        """Serialize for the annotation. Leaves out empty fields to save bytes on the edge link."""
        return orjson.dumps({name: value for name, value in asdict(self).items() if value}).decode()

    def lasting(self) -> HubStatus:
        """The fields whose changes are reported at once, not with the next renewal."""
        return replace(self, oldest=0, up=0, down=0)


def read_status(text: str) -> HubStatus:
    """Parse the annotation, and ignore fields of newer hubs. ValueError if it is malformed."""
    if len(text) > LONGEST:
        raise ValueError(f"it has more than {LONGEST} bytes")
    said: Any = orjson.loads(text)
    if not isinstance(said, dict):
        raise ValueError("it is not a JSON object")
    known = {field.name: type(field.default) for field in fields(HubStatus)}
    taken = {name: value for name, value in said.items() if name in known}
    for name, value in taken.items():
        if type(value) is not known[name]:
            raise ValueError(f"{name} is not a {known[name].__name__}")
        if isinstance(value, str) and not value.isprintable():
            raise ValueError(f"{name} cannot be printed")
        if isinstance(value, int) and value < 0:
            raise ValueError(f"{name} is negative")
    return HubStatus(**taken)


LEASES = ResourceType("coordination.k8s.io", "v1", "leases").path("kube-node-lease")
DURATION = 40
"""Seconds that a Lease is valid if it names no duration: kubelet's default."""
COLUMNS = ("node", "pool", "version", "role", "link", "via", "copies", "waiting", "up", "down", "needs")
"""The columns of the table, on a terminal and on the page."""


@dataclass(frozen=True, slots=True)
class FleetHub:
    """One hub: its last status, its node's silence, and the reasons why it needs attention."""

    node: str
    status: HubStatus
    role: str
    """"leader" or "follower" in a pool with leaders, else ""."""
    silent: int | None
    """Seconds since the node's last renewal; None while its Lease is valid."""
    needs: tuple[str, ...]
    """Findings that need attention, the worst first."""

    def to_json(self) -> Json:
        """The hub as JSON, for tools."""
        return asdict(self)

    def cells(self, now: datetime) -> list[str]:
        """The texts of the row, one for each of `COLUMNS`."""
        said = self.status
        link = f"up for {_ago(said.since, now)}" if said.since else "up"
        copies = f"{said.stale} stale, {_ago(said.oldest, now)}" if said.stale else "current"
        return [
            *(self.node, said.pool, said.version, self.role),
            f"silent for {human_duration(self.silent)}" if self.silent is not None else link,
            *(said.via, copies, str(said.waiting), size(said.up), size(said.down), "; ".join(self.needs)),
        ]


async def read_fleet(client: Client, now: datetime) -> list[FleetHub]:
    """Read all hubs of the cluster; hubs that need attention come first. Raises as `Client.request`."""
    leases = await _listed(client, LEASES)
    try:
        leaders = leaders_of(await _listed(client, NODEPOOL_TYPE.path()))
    except StatusError as error:
        if error.code != 404:
            raise
        leaders = {}  # a cluster without node pools
    return fleet(leases, leaders, now)


async def read_progress(client: Client) -> list[str]:
    """Describe the install progress of each pool that selects nodes by label, one line each. Raises as
    `Client.request`."""
    try:
        pools = await _listed(client, NODEPOOL_TYPE.path())
    except StatusError as error:
        if error.code != 404:
            raise
        return []  # a cluster without node pools
    return [
        f"pool {pool['metadata']['name']}: {condition.get('reason', '')}: {condition.get('message', '')}"
        for pool in pools
        for condition in pool.get("status", {}).get("conditions") or ()
        if condition.get("type") == HUBS_INSTALLED
    ]


async def _listed(client: Client, path: str) -> list[Json]:
    try:
        _, pages = await read_pages(
            lambda query: client.request("GET", path, query=query), {}, lambda _size: None
        )
    except Malformed as error:
        raise Unreachable(f"{path}: {error}") from error
    return [parse_object(bytes(raw)) for page in pages for raw in page.items]


def leaders_of(pools: Iterable[Json]) -> dict[str, frozenset[str]]:
    """The leader nodes of each pool that has leaders, by pool name."""
    leaders = {
        pool["metadata"]["name"]: frozenset(
            leader_endpoint.get("nodeName", "")
            for leader_endpoint in pool.get("status", {}).get("leaderEndpoints") or ()
        )
        for pool in pools
    }
    return {pool: names for pool, names in leaders.items() if names}


def fleet(leases: Iterable[Json], leaders: Mapping[str, frozenset[str]], now: datetime) -> list[FleetHub]:
    """Build the hubs from the Leases that have a status. Nodes without a hub are left out."""
    read = [
        (lease, *_read(text))
        for lease in leases
        if (text := lease["metadata"].get("annotations", {}).get(ANNOTATION)) is not None
    ]
    versions = Counter(status.version for _, status, _ in read)
    usual = max(versions, key=lambda version: (versions[version], version), default="")
    rows = []
    for lease, status, fault in read:
        name, silent = lease["metadata"]["name"], _silence(lease.get("spec", {}), now)
        needs = (fault,) if fault else tuple(_needs(status, silent, usual))
        rows.append(FleetHub(name, status, _role(name, status.pool, leaders), silent, needs))
    return sorted(rows, key=lambda hub: (not hub.needs, hub.silent is None, -len(hub.needs), hub.node))


def _read(text: str) -> tuple[HubStatus, str]:
    """Parse the status. The second value is the error, "" if there is none."""
    try:
        return read_status(text), ""
    except ValueError as error:
        return HubStatus(), f"its status cannot be read: {error}"


def _needs(status: HubStatus, silent: int | None, usual: str) -> Iterator[str]:
    """The findings that need attention, the worst first. `usual` is the version that most hubs have."""
    if silent is not None:
        yield f"silent for {human_duration(silent)}"
    if status.rollback:
        yield f"rolled back from {status.rollback}"
    if status.problems:
        yield f"problems: {status.problems}, see `edgehub status` there"
    if status.waiting:
        yield f"waiting writes: {status.waiting}"
    if status.stale:
        yield f"stale copies: {status.stale}"
    if status.version != usual:
        yield f"most hubs have version {usual}"


def _role(node: str, pool: str, leaders: Mapping[str, frozenset[str]]) -> str:
    if pool not in leaders:
        return ""
    return "leader" if node in leaders[pool] else "follower"


def _silence(spec: Json, now: datetime) -> int | None:
    """Seconds since the last renewal of a Lease; None while the Lease is valid."""
    renewed = parse_time(spec.get("renewTime"))
    if renewed is None:
        return None
    seconds = int((now - renewed).total_seconds())
    return seconds if seconds > (spec.get("leaseDurationSeconds") or DURATION) else None


def _ago(seconds: int, now: datetime) -> str:
    return human_duration(now.timestamp() - seconds)
