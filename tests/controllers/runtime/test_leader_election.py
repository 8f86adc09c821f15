"""Election by a Lease on a virtual clock, against a small server of one Lease."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from controllers.runtime.leader_election import LeaderElector
from kube.errors import conflict, not_found
from kube.http.client import ApiResponse, Unreachable
from kube.json_type import Json
from tests.kube.support.answering import AnsweringClient, Asked

pytestmark = pytest.mark.looptime


class LeaseServer:
    """A server of one Lease with optimistic locking. `down` does not respond; `slow` accepts a write but responds
    late."""

    def __init__(self) -> None:
        self.lease: Json = {}
        self.version = 0
        self.down: set[str] = set()
        self.slow: set[str] = set()
        self.writes: list[tuple[float, str]] = []

    def answer(self, who: str, method: str, body: bytes) -> bytes:
        if who in self.down:
            raise Unreachable("no route")
        if method != "GET":
            given = orjson.loads(body or b"{}")
            version = given["metadata"].get("resourceVersion")
            if (method == "POST") == bool(self.lease) or (method == "PUT" and version != str(self.version)):
                raise conflict("somebody else was first")
            self.version += 1
            given["metadata"]["resourceVersion"] = str(self.version)
            self.lease = given
            self.writes.append((asyncio.get_running_loop().time(), given["spec"]["holderIdentity"]))
        elif not self.lease:
            raise not_found("leases.coordination.k8s.io", "manager")
        return orjson.dumps(self.lease)


class LeaseClient(AnsweringClient):
    """The elector's client, connected to the server without a network."""

    def __init__(self, server: LeaseServer, who: str) -> None:
        super().__init__()
        self._server, self._who = server, who

    async def answer(self, asked: Asked) -> ApiResponse:
        try:
            answer = self._server.answer(self._who, asked.method, asked.body)
            if self._who in self._server.slow and asked.method != "GET":
                await asyncio.sleep(1.0)
            return ApiResponse("application/json", answer)
        except Unreachable:
            await asyncio.sleep(asked.timeout)
            raise


class Candidate:
    """A candidate process: its elector, and the times of its work."""

    def __init__(self, server: LeaseServer, name: str) -> None:
        loop = asyncio.get_running_loop()
        self.elector = LeaderElector(LeaseClient(server, name), "ns", "manager", name, clock=loop.time)
        self.terms: list[list[float]] = []
        self.task = asyncio.ensure_future(self.elector.run(self._lead))

    async def _lead(self) -> None:
        loop = asyncio.get_running_loop()
        self.terms.append([loop.time()])
        try:
            await asyncio.Event().wait()
        finally:
            self.terms[-1].append(loop.time())

    @property
    def leads(self) -> bool:
        return self.elector.remaining() > 0

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


async def test_a_leader_releases_the_lease_at_its_end() -> None:
    server = LeaseServer()
    first = Candidate(server, "first")
    await asyncio.sleep(0.5)
    second = Candidate(server, "second")
    await asyncio.sleep(30)
    assert (first.leads, second.leads) == (True, False)
    await first.end()
    assert not first.leads
    assert server.lease["spec"]["holderIdentity"] == ""
    await asyncio.sleep(1.5)
    assert second.leads
    assert server.lease["spec"]["leaseTransitions"] == 1
    await second.end()
    assert first.terms[0][1] <= second.terms[0][0] <= first.terms[0][1] + 1.5


@pytest.mark.parametrize("moment", [0.5, 3.5], ids=["as it takes the Lease", "as it renews the Lease"])
async def test_the_lease_is_released_during_an_unanswered_renewal(moment: float) -> None:
    """The server has accepted the renewal, so the version known to the elector is outdated."""
    server = LeaseServer()
    server.slow.add("only")
    only = Candidate(server, "only")
    await asyncio.sleep(moment)
    assert server.lease["spec"]["holderIdentity"] == "only"
    await only.end()
    assert server.lease["spec"]["holderIdentity"] == ""


async def test_a_lease_edited_by_another_client_is_released() -> None:
    server = LeaseServer()
    only = Candidate(server, "only")
    await asyncio.sleep(0.5)
    server.version += 1
    server.lease["metadata"] = {"resourceVersion": str(server.version), "labels": {"edited": "yes"}}
    await only.end()
    assert server.lease["spec"]["holderIdentity"] == ""
    assert server.lease["metadata"]["labels"] == {"edited": "yes"}


async def test_after_a_crash_another_candidate_leads_when_the_lease_expires() -> None:
    server = LeaseServer()
    first = Candidate(server, "first")
    second = Candidate(server, "second")
    await asyncio.sleep(20)
    leader, other = (first, second) if first.leads else (second, first)
    server.down.add("first" if leader is first else "second")
    cut = asyncio.get_running_loop().time()
    await asyncio.sleep(15)
    assert other.leads
    [stopped], [began] = [leader.terms[0][1:], other.terms[0][:1]]
    # A leader that cannot renew stops at its own deadline, before another one may start.
    assert stopped < began <= cut + 12.5
    await leader.end()
    await other.end()


@pytest.mark.parametrize(("seconds", "terms"), [(3, 1), (30, 2)], ids=["short", "long"])
async def test_leadership_survives_a_short_outage_and_ends_in_a_long_one(seconds: int, terms: int) -> None:
    server = LeaseServer()
    only = Candidate(server, "first")
    await asyncio.sleep(10)
    server.down.add("first")
    await asyncio.sleep(seconds)
    assert only.leads is (terms == 1)
    server.down.clear()
    await asyncio.sleep(30)
    assert (only.leads, len(only.terms)) == (True, terms)
    await only.end()


async def test_a_manager_that_lost_its_lease_stops_at_once() -> None:
    server = LeaseServer()
    only = Candidate(server, "first")
    await asyncio.sleep(3)
    server.version += 1
    server.lease["metadata"]["resourceVersion"] = str(server.version)
    server.lease["spec"]["holderIdentity"] = "thief"
    await asyncio.sleep(2.5)
    assert not only.leads
    await only.end()
    assert server.lease["spec"]["holderIdentity"] == "thief"


async def test_work_that_returns_early_is_an_error_and_releases_the_lease() -> None:
    server = LeaseServer()

    async def work() -> None:
        raise ValueError("broken")

    elector = LeaderElector(
        LeaseClient(server, "a"), "ns", "manager", "a", clock=asyncio.get_running_loop().time
    )
    with pytest.raises(ValueError, match="broken"):
        await elector.run(work)
    assert server.lease["spec"]["holderIdentity"] == ""


async def test_a_malformed_lease_expires_after_its_duration() -> None:
    server = LeaseServer()
    server.lease = {
        "metadata": {"resourceVersion": "0"},
        "spec": {"holderIdentity": 5, "leaseDurationSeconds": "x"},
    }
    only = Candidate(server, "first")
    await asyncio.sleep(12)
    assert only.leads
    await only.end()
