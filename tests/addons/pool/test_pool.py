"""A hub's role and its effects: the peer port, the announcement, other hubs' streams, and the hub's own sources."""

from __future__ import annotations

import asyncio
import datetime
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from addons.certificates.requested_certificate import RequestedCertificate
from addons.certificates.serving_certificate import Certificate
from addons.certificates.tls_port_certificate import own_certificate
from addons.link.health import Cloud, ServerHealth
from addons.link.link import UpstreamManager
from addons.link.servers import Server, parse_server
from addons.pool.announcement import Announcement
from addons.pool.leader_selector import LeaderSelector
from addons.pool.peer_admission import Admission
from addons.pool.peer_reader import SharedSources
from addons.pool.peer_serving import PeerServing
from addons.pool.peers.own_peer import OwnPeer
from addons.pool.peers.peer import PeerAnswer
from addons.pool.peers.peer_probes import Peers
from addons.pool.pool import PEER_KEY, PeerPort, Pool
from addons.pool.pool_config import NO_POOL, PoolConfig, Role
from addons.pool.pool_facts import PoolFacts
from addons.pool.shared_links.tunnel_server import TunnelServer
from addons.requests.headers import AGE_HEADER, DEPUTIES_HEADER, LENDERS_HEADER
from addons.requests.route_decision import PEER_PROBE_PATH
from addons.telemetry import metrics
from kube.concurrency.notifier import Notifier
from kube.http.client import RawResponse
from kube.http.kubeconfig import Credentials, DataOrFile, User
from kube.peers import LeaderHub
from kube.requests.request_info import ResourceType
from tests.addons.support.hub_world import HUB_TOKEN, HubWorld
from tests.addons.support.observed import until
from tests.addons.support.scripted_client import Asked, ScriptedClient
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.access import User as KnownUser
from tests.support.background import beside

SERVICES = ResourceType("", "v1", "services")
A, B = LeaderHub("a", "10.0.0.1"), LeaderHub("b", "10.0.0.2")


class Facts:
    """Facts of a pool that the test sets."""

    name = "p1"
    is_known = False
    authorities = ()

    def __init__(self) -> None:
        self.config = NO_POOL
        self.members: frozenset[str] | None = None
        self._changed: Callable[[], None] = lambda: None

    async def run(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        await asyncio.Event().wait()

    def close(self) -> None:
        """Do nothing: no source is open."""

    def shares(self, type_: ResourceType) -> bool:
        return self.config.shares(type_)

    def has(self, node: str) -> bool | None:
        return node in self.members if self.members is not None else None

    def say(self, *leaders: LeaderHub, members: str = "a b") -> None:
        """Set the leaders and members of the pool, which shares services."""
        self.config, self.members = (
            PoolConfig(leaders, (SERVICES,), is_shared=True),
            frozenset(members.split()),
        )
        self.is_known = True
        self._changed()


class GivenCertificate:
    def __init__(self) -> None:
        self.current: Certificate | None = None
        self.wanted = False
        self.changed: Callable[[], None] = lambda: None

    def expiry(self) -> datetime.datetime | None:
        return self.current.expiry() if self.current is not None else None

    def want(self, wanted: bool) -> None:
        self.wanted = wanted

    async def run(self, changed: Callable[[], None]) -> None:
        self.changed = changed
        await asyncio.Event().wait()


class Hub:
    """The pool of node a, on a scriptable cloud."""

    def __init__(self, parts: HubWorld) -> None:
        self.parts = parts
        self.facts, self.certificate = Facts(), GivenCertificate()
        self.port: list[bool] = []
        self.port_error: OSError | None = None
        self.is_up, self.changed = True, Notifier()
        self.deputies = ""
        client = ScriptedClient(self._answer)
        self.announced = client.asked
        self.lending = ServerHealth(parse_server("https://cloud:6443"))
        shown = Credentials(user=User(DataOrFile(b"certificate")))
        own, peers = OwnPeer("a", 10269, credentials=shown), Peers(client, lambda _: 0)
        selector = LeaderSelector(own, peers, SharedSources(parts.sources), lambda: self.is_up)
        parts.sources.on_new.append(selector.attach_reader)
        admission = Admission(lambda: self.certificate.current, list, self.facts.has)
        self.lent = TunnelServer(
            Cloud([self.lending], "priority"), admission, 1000, lambda _: None, is_on=True
        )
        serving = PeerServing(parts.sources, parts.serving, lambda: selector.serves, self.facts.shares)
        certificate = cast(RequestedCertificate, self.certificate)
        announcement = Announcement("a", 10269, client)
        port = PeerPort(certificate, announcement, admission, serving, self.lent, self._open_port)
        facts, link = cast(PoolFacts, self.facts), cast(UpstreamManager, SimpleNamespace(cloud=self))
        self.pool = Pool(facts, parts.sources, selector, port, link)

    def _answer(self, asked: Asked) -> Any:
        """Answer a probe as a leader that names deputies, and an announcement as the cloud."""
        if asked.path == PEER_PROBE_PATH:
            return RawResponse(404, {DEPUTIES_HEADER: self.deputies}, b"")
        return {}

    async def _open_port(self, wanted: bool) -> None:
        if self.port_error is not None:
            raise self.port_error
        self.port.append(wanted)


@pytest.fixture
async def hub() -> AsyncIterator[Hub]:
    async with ScriptableCloud() as cloud, HubWorld(cloud) as parts:
        cloud.access.tokens[HUB_TOKEN] = KnownUser("hub")
        made = Hub(parts)
        async with beside(made.pool.run()):
            await asyncio.sleep(0.01)
            yield made
        made.pool.close()


def set_certificate(hub: Hub, folder: Path) -> None:
    hub.certificate.current = own_certificate(folder, ["10.0.0.1"])
    hub.certificate.changed()


async def test_a_leader_is_a_follower_until_it_has_a_certificate(hub: Hub, tmp_path: Path) -> None:
    def shown_role() -> list[str]:
        value = metrics.REGISTRY.get_sample_value
        return [role for role in Role if value("edgehub_pool_role", {"role": role}) == 1]

    assert shown_role() == ["none"]
    hub.facts.say(A, B)
    assert hub.pool.role is Role.FOLLOWER
    assert hub.certificate.wanted
    assert hub.pool.describe()["whyNot"] == "no certificate yet"
    assert not hub.port
    set_certificate(hub, tmp_path)
    await until(hub.pool.leads)
    assert hub.port == [True]
    await until(lambda: hub.announced)
    assert shown_role() == ["leader"]
    shown = hub.pool.describe()
    assert (shown["role"], shown["canLead"], shown["leaders"]) == (
        "leader",
        True,
        ["a/10.0.0.1", "b/10.0.0.2"],
    )


async def test_a_leader_opens_sources_of_shared_resources(hub: Hub, tmp_path: Path) -> None:
    set_certificate(hub, tmp_path)
    hub.facts.say(A)
    await until(lambda: [each for each in hub.parts.sources if PEER_KEY in each.views])
    (source,) = hub.parts.sources
    assert (source.list_watch.type, source.users) == (SERVICES, 1)
    hub.facts.say(B)
    assert hub.pool.role is Role.FOLLOWER
    await until(lambda: not source.users)


async def test_a_deputy_serves_the_pool_and_opens_sources_of_shared_resources(
    hub: Hub, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    set_certificate(hub, tmp_path)
    hub.facts.say(B)
    await until(lambda: hub.port)
    assert not hub.pool.selector.serves
    [leader] = hub.pool.selector._order
    hub.deputies = "a/10.0.0.1"
    hub.pool.selector.peers._take(leader, PeerAnswer(deputies=(A,)))
    assert hub.pool.selector.serves
    assert (hub.pool.role, hub.pool.describe()["isDeputy"]) == (Role.FOLLOWER, True)
    await until(lambda: [each.users for each in hub.parts.sources] == [1])
    assert DEPUTIES_HEADER not in hub.pool.headers()
    assert caplog.messages.count("pool p1: this hub is a deputy") == 1
    # The leader no longer names it as a deputy.
    hub.deputies = ""
    hub.pool.selector.peers._take(leader, PeerAnswer())
    await until(lambda: [each.users for each in hub.parts.sources] == [0])
    assert not hub.pool.selector.serves


async def test_a_leader_names_its_deputies_in_each_response(hub: Hub, tmp_path: Path) -> None:
    set_certificate(hub, tmp_path)
    hub.facts.say(A)
    await until(hub.pool.leads)
    hub.pool.port.admission.deputies.announce("b", "10.0.0.2", "10.0.0.9")
    hub.pool.port.admission.deputies.announce("c", "10.0.0.3", "10.0.0.9")
    assert hub.pool.headers() == {AGE_HEADER: "0", DEPUTIES_HEADER: "b/10.0.0.2"}
    hub.facts.config = hub.facts.config._replace(has_deputies=False)
    assert hub.pool.headers() == {AGE_HEADER: "0"}


async def test_a_pool_that_shares_nothing_opens_no_peer_port(hub: Hub, tmp_path: Path) -> None:
    set_certificate(hub, tmp_path)
    hub.facts.say(A)
    await until(hub.pool.leads)
    hub.facts.config = NO_POOL
    hub.facts._changed()
    assert hub.pool.role is Role.NONE
    await until(lambda: hub.port == [True, False])
    assert not hub.certificate.wanted


def announced(hub: Hub) -> list[str]:
    writes = [json.loads(each.body) for each in hub.announced if each.method == "PATCH"]
    return [each["metadata"]["annotations"]["edgehub.io/peer"] for each in writes]


async def test_a_peer_port_that_fails_to_open_is_reported_and_announced_as_closed(
    hub: Hub, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An earlier process may have announced the port."""
    hub.port_error = OSError(98, "hub_peer_port: cannot listen on 10269: Address already in use")
    set_certificate(hub, tmp_path)
    hub.facts.say(A, B)
    await until(lambda: announced(hub) == ["0"])
    assert hub.pool.role is Role.FOLLOWER
    assert "10269: Address already in use: this hub cannot lead its pool" in caplog.text
    assert hub.pool.closed() == [hub.pool.describe()["whyNot"]] == [hub.port_error.strerror]
    hub.port_error = None
    hub.facts.say(A)
    await until(lambda: announced(hub) == ["0", "10269"])
    assert hub.pool.closed() == []


async def test_the_peer_port_is_announced_only_with_a_certificate_and_a_known_pool(
    hub: Hub, tmp_path: Path
) -> None:
    hub.facts.say(A)
    await until(lambda: hub.certificate.wanted)
    assert announced(hub) == [], "the certificate of an earlier process may be on the disk"
    hub.certificate.changed()
    await until(lambda: announced(hub) == ["0"])
    set_certificate(hub, tmp_path)
    await until(lambda: announced(hub) == ["0", "10269"])
    assert hub.pool.closed() == []


async def test_a_leader_reports_the_time_without_a_cloud(hub: Hub) -> None:
    assert hub.pool.age() == 0
    hub.is_up = False
    hub.changed.notify()
    await until(hub.pool.age)
    assert hub.pool.age() >= 1
    hub.is_up = True
    hub.changed.notify()
    await until(lambda: not hub.pool.age())


async def test_a_leader_names_lenders_and_borrows_from_lenders_it_knows(hub: Hub, tmp_path: Path) -> None:
    hub.facts.say(A, LeaderHub("c", "10.0.0.3"), members="a b c d")
    set_certificate(hub, tmp_path)
    await until(hub.pool.leads)
    assert LENDERS_HEADER not in hub.pool.headers()
    hub.pool.port.admission.lenders.announce("b", "10.0.0.2", "10.0.0.9")
    hub.pool.port.admission.lenders.announce("stranger", "10.0.0.8", "10.0.0.9")
    hub.pool.port.admission.deputies.announce("d", "10.0.0.4", "10.0.0.9")
    hub.pool.port.admission.lenders.announce("c", "10.6.6.6", "10.0.0.9")
    assert sorted(hub.pool.headers()[LENDERS_HEADER].split(",")) == ["b/10.0.0.2", "c/10.6.6.6"]
    found = {each.node: str(each) for each in hub.pool.lenders()}
    assert found["c"] == "https://10.0.0.3:10269", "what the ConfigMap says counts"
    assert sorted(found) == ["b", "c", "d", "stranger"]
    selector, first = hub.pool.selector, hub.pool.lenders()[0]
    peer = selector.peers.use(selector, Server("https", first.host, 10269, first.node))
    selector.peers._take(peer, PeerAnswer(age=3.0))
    assert hub.pool.lenders()[-1] == first, "it has no cloud to lend"
    hub.facts.config = NO_POOL
    assert hub.pool.lenders() == []


async def test_a_hub_lends_its_uplink_while_its_peer_port_is_open(hub: Hub, tmp_path: Path) -> None:
    hub.facts.say(A)
    assert not hub.lent.has_path
    set_certificate(hub, tmp_path)
    await until(hub.pool.leads)
    assert hub.lent.has_path
    hub.lending.failed("refused")
    assert not hub.lent.has_path
