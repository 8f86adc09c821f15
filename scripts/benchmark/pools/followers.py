"""The table of `scripts/bench --links` about a pool: bytes on a follower's own link and on the leader's."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from scripts.benchmark.freshness import BREAK, QUIET, listed
from tests.cloud.real import RealCloud
from tests.hub.support.pool_site import Member, Site
from tests.support.polling import eventually

NETS = {200: 42, 1000: 43}
"""By the size of the pool: the third byte of the hubs' addresses, 127.0.NET.1 and so on."""
UPDATES = 100
REST = 60.0
"""Seconds of a step without writes."""
SLICE = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/copied-{}"


def measure(cloud: RealCloud, folder: Path, size: int) -> None:
    """Print the bytes in both directions on the cloud links of a leader and a follower, step by step."""
    folder.mkdir(parents=True)
    site = Site(cloud, folder, f"followed-{size}", NETS[size])
    try:
        site.prepare(1, 2)
        steps(site, size)
    finally:
        site.close()


def steps(site: Site, size: int) -> None:
    leader, follower = site.members
    site.lead(leader)
    print(f"\n{f'a pool with {size} Services and slices, KB':50}{'leader':>9}{'follower':>9}{'share':>8}")
    table: dict[str, tuple[Callable[[], object], ...]] = {
        "started, and both listed at each": (
            partial(begin, leader, "leader"),
            partial(begin, follower, "follower"),
        ),
        f"{UPDATES} slices are written": (partial(update, site),),
        "a list of each without a version at each": (partial(listed_at_each, site),),
        f"the links break for {BREAK:.0f} s": (
            *(each.link.refuse for each in site.members),
            partial(time.sleep, BREAK),
            *(each.link.carry for each in site.members),
        ),
        f"{REST:.0f} s of rest": (partial(time.sleep, REST),),
    }
    sums = [0, 0]
    for what, step in table.items():
        before = list(map(carried, site.members))
        for do in step:
            do()
        time.sleep(QUIET)
        spent = [now - then for now, then in zip(map(carried, site.members), before, strict=True)]
        sums = [one + other for one, other in zip(sums, spent, strict=True)]
        row(what, *spent)
    row("all", *sums)


def row(what: str, leader: int, follower: int) -> None:
    print(f"{what:50}{leader / 1e3:9.1f}{follower / 1e3:9.1f}{100 * follower / leader:6.1f} %")


def carried(member: Member) -> int:
    """Return the bytes on a node's link to the cloud so far."""
    return member.link.traffic.up + member.link.traffic.down


def begin(member: Member, role: str) -> None:
    member.hub.start()
    eventually(lambda: member.pool()["role"] == role, f"{member.name} is a {role}")
    listed(member.hub, "resourceVersion=0")


def listed_at_each(site: Site) -> None:
    for member in site.members:
        listed(member.hub, "")


def update(site: Site) -> None:
    for number in range(UPDATES):
        site.cloud.admin.patch(
            SLICE.format(number), {"metadata": {"labels": {"written": str(time.time_ns())}}}
        )
