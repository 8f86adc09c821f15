"""A pool with one working link keeps all its nodes connected: hubs borrow another hub's link to the cloud, or lend
theirs."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from kube.errors import StatusError
from tests.cloud.link import Mode
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.access import User
from tests.hub.support.lone_links import Member, lone_links, until
from tests.hub.support.process import SLACK, run_scene
from tests.hub.support.streams import executed, watching
from tests.support.background import beside
from tests.support.objects import obj

PIECE = 16 * 1024 * 1024


def holds(pid: int, wanted: bytes) -> bool:
    """Return True if the writable memory of a process contains these bytes. OSError if the kernel does not permit
    reading it."""
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, rights, *_ = line.split()
            if not rights.startswith("rw"):
                continue
            at, end = (int(each, 16) for each in span.split("-"))
            tail = b""
            while at < end:
                memory.seek(at)
                piece = memory.read(min(PIECE, end - at))
                if not piece:
                    break
                if wanted in tail + piece:
                    return True
                tail, at = piece[-len(wanted) :], at + len(piece)
    return False


CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
EACH = 0.25
"""Seconds between two renewals of a lease."""


class Renewals:
    """Record when the cloud got each renewal of a node's lease."""

    def __init__(self) -> None:
        self.at: list[float] = []

    @property
    def longest_gap(self) -> float:
        return max(later - earlier for earlier, later in zip(self.at, self.at[1:], strict=False))


@asynccontextmanager
async def renewing(cloud: ScriptableCloud, member: Member) -> AsyncIterator[Renewals]:
    """Renew a kubelet's lease through the member's hub, and read the cloud's state of it."""
    seen, number = Renewals(), 0
    cloud.store.create(obj("Lease", member.name, "kube-node-lease", spec={}))

    async def renew() -> None:
        nonlocal number
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(10)) as session:
            while True:
                number += 1
                spec = {"spec": {"holderIdentity": f"{member.name}-{number}"}}
                headers = {"User-Agent": "kubelet/v1.34.0", "Content-Type": "application/merge-patch+json"}
                with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                    await session.patch(f"{member.hub.url}{LEASES}/{member.name}", json=spec, headers=headers)
                await asyncio.sleep(EACH)

    async def look() -> None:
        last = None
        while True:
            with contextlib.suppress(StatusError):
                spec = cloud.store.get("leases", member.name, "kube-node-lease")["spec"]
                if spec != last:
                    last = spec
                    seen.at.append(time.monotonic())
            await asyncio.sleep(0.02)

    async with beside(renew(), look()):
        yield seen
        seen.at.append(time.monotonic())


@pytest.mark.parametrize("mode", [Mode.REFUSE, Mode.BLACK_HOLE])
async def test_a_node_with_a_cut_link_borrows_that_of_another_hub(tmp_path: Path, mode: Mode) -> None:
    """The black hole accepts connections, like a firewall that passes only handshakes."""

    def servers_of(member: Member, path: str) -> set[str]:
        """Return the servers from which a member's hub reads a resource: the cloud, or leaders."""
        return {str(each["server"]) for each in member.hub.sources() if each["path"] == path}

    def cut(member: Member, mode: Mode) -> None:
        (member.link.refuse if mode is Mode.REFUSE else member.link.black_hole)()

    services = "/api/v1/services"
    # Seconds within which a hub detects a broken link, as in docs/links.md.
    noticed = 6.0
    async with lone_links(tmp_path, (), ()) as pool:
        lender, borrower = pool.members
        assert await asyncio.to_thread(borrower.via, "own")
        async with (
            watching(borrower.hub.url, services, component="kube-proxy") as events,
            renewing(pool.cloud, borrower) as renewals,
        ):
            await until(lambda: len(renewals.at) > 2, "the lease is renewed")
            await asyncio.to_thread(cut, borrower, mode)
            await until(lambda: borrower.via(lender.name), "the link is borrowed")
            assert await executed(borrower.hub.url) == b"\x00LS"
            await until(lambda: servers_of(borrower, services) == {lender.name}, "the leader is read from")
            pool.cloud.store.create(obj("Service", "web"))
            await events.first("ADDED", "web")
            await until(lambda: servers_of(borrower, services) == {lender.name}, "it is read from further")
            readiness = await asyncio.to_thread(borrower.hub.admin, "/readyz?exclude=node")
            assert readiness == f"ok, with the link of node {lender.name}\n"
            assert await asyncio.to_thread(lender.pool_report) | {"lends": {}} != await asyncio.to_thread(
                lender.pool_report
            )
            assert lender.hub.metric("edgehub_lent_bytes_total", direction="up", node=borrower.name) > 0
            await asyncio.to_thread(borrower.link.carry)
            await until(lambda: borrower.via("own"), "the node goes its own way again")
            await until(lambda: not lender.pool_report()["lends"], "nothing is lent any more")
        # kubelet's connection outlives those to the proxy and to the server beyond it, which close together.
        assert "has crashed" not in "".join(borrower.hub.process.lines)
        print(f"longest gap of the lease: {renewals.longest_gap:.1f} s")
        assert renewals.longest_gap < noticed + SLACK


async def test_the_next_lender_takes_over_and_a_borrowed_uplink_is_not_lent(tmp_path: Path) -> None:
    async with lone_links(tmp_path, (), (), ("--lend", "off")) as pool:
        leader, deputy, last = pool.members
        await asyncio.to_thread(last.link.refuse)
        await until(lambda: last.via(leader.name) or last.via(deputy.name), "a link is borrowed")
        await asyncio.to_thread(leader.link.refuse)
        await until(lambda: leader.via(deputy.name), "the leader borrows of the one that it knows")
        await until(lambda: last.via(deputy.name), "the leader lends nothing that it borrows")
        await asyncio.to_thread(leader.link.carry)
        await until(lambda: leader.via("own"), "the leader has its own link again")
        await asyncio.to_thread(deputy.hub.kill)
        await until(lambda: last.via(leader.name), "the other one takes over")
        # `--lend off`: the last hub has a link, and lends it to none.
        await asyncio.to_thread(last.link.carry)
        await until(lambda: last.via("own"), "the last one has its own link again")
        await asyncio.to_thread(leader.link.refuse)
        await until(lambda: leader.via("none"), "the leader is offline")
        assert await asyncio.to_thread(last.hub.metric, "edgehub_lent_tunnels") == 0


async def test_the_lenders_memory_contains_neither_token_nor_object(tmp_path: Path) -> None:
    token, text = "tok3n-of-a-pod-on-the-borrower", "an-0bject-that-the-borrower-reads"
    async with lone_links(tmp_path, (), ()) as pool:
        lender, borrower = pool.members
        pool.cloud.access.tokens[token] = User("system:serviceaccount:default:pod")
        pool.cloud.store.create(obj("ConfigMap", "x", "default", data={"x": text}))
        await asyncio.to_thread(borrower.link.refuse)
        await until(lambda: borrower.via(lender.name), "the link is borrowed")
        async with aiohttp.ClientSession() as session:
            for headers in ({"Authorization": f"Bearer {token}"}, {}):
                async with session.get(borrower.hub.url + CONFIG_MAPS, headers=headers) as answer:
                    assert text in await answer.text()
        try:
            assert await asyncio.to_thread(holds, borrower.hub.pid, text.encode())
        except OSError:
            pytest.skip("this kernel shows no process another one's memory")
        for secret in (token, text):
            assert not await asyncio.to_thread(holds, lender.hub.pid, secret.encode())


async def test_a_node_with_borrowing_off_goes_offline(tmp_path: Path) -> None:
    async with lone_links(tmp_path, (), ("--borrow", "off")) as pool:
        lender, other = pool.members
        await asyncio.to_thread(other.link.refuse)
        await until(lambda: other.via("none"), "the node is offline")
        async with aiohttp.ClientSession() as session, session.get(other.hub.url + CONFIG_MAPS) as answer:
            assert answer.status == 503
        assert await asyncio.to_thread(lender.hub.metric, "edgehub_lent_tunnels") == 0


async def test_a_node_that_starts_without_its_link_loads_its_lenders_from_disk(tmp_path: Path) -> None:
    async with lone_links(tmp_path, (), ()) as pool:
        lender, borrower = pool.members
        await asyncio.to_thread(borrower.hub.stop)
        await asyncio.to_thread(borrower.link.refuse)
        await asyncio.to_thread(borrower.hub.start)
        await until(lambda: borrower.via(lender.name), "the link is borrowed")


def test_nodes_in_separate_networks_share_one_link_to_the_cloud(isolated: list[str], tmp_path: Path) -> None:
    bucket = shlex.split("tc qdisc add dev lo root tbf rate 1mbit burst 150 latency 50ms")
    if subprocess.run([*isolated, *bucket], capture_output=True, check=False).returncode:
        pytest.skip("this machine has no tc, or its kernel no token bucket")
    done = run_scene(isolated, "three_networks", tmp_path)
    assert done.stdout.splitlines() == [
        "refusing: the lease is renewed through another node",
        "a black hole: the lease is renewed through another node",
        "a firewall behind the handshake: the lease is renewed through another node",
        "the lender is killed: the other node lends its way",
    ], done.stderr
    print(*(each for each in done.stderr.splitlines() if "longest gap" in each), sep="\n")
