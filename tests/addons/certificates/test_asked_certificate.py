"""A certificate that the cluster signs: the hub asks for it when a part wants it, keeps it, and renews it in time."""

from __future__ import annotations

import asyncio
import base64
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from OpenSSL import SSL

from addons.certificates import asked_certificate, serving_certificate
from addons.certificates.asked_certificate import renewal_of, serving_certificate_of
from addons.certificates.serving_certificate import Pair
from addons.certificates.signing_request import client_request
from kube.certificate_authority import names_of
from kube.concurrency.pulse import Pulse
from tests.addons.support.observed import until
from tests.addons.support.signing_cluster import AUTHORITY, SigningCluster
from tests.support.background import beside

KEY = ec.generate_private_key(ec.SECP256R1())
PATIENCE = 20.0
"""Seconds that a test waits for what takes some milliseconds."""


class Cluster(SigningCluster):
    """The port is called by these addresses, too."""

    also: tuple[str, ...] = ()


class Running:
    """A certificate that is seen to."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.back = Pulse()
        self.certificate = serving_certificate_of(
            "peer", "n1", cluster.hub, folder / "peer.pem", self.back, lambda: cluster.also
        )
        self.news: asyncio.Queue[str] = asyncio.Queue()

    def changed(self) -> None:
        self.news.put_nowait(self.serial)

    @property
    def serial(self) -> str:
        """Which certificate there is now; "" for none."""
        found = self.certificate.current
        return str(found.certificate.serial_number) if found is not None else ""

    async def next(self) -> str:
        async with asyncio.timeout(PATIENCE):
            return await self.news.get()


@asynccontextmanager
async def running(cluster: Cluster, folder: Path) -> AsyncIterator[Running]:
    made = Running(cluster, folder)
    async with beside(made.certificate.run(made.changed)):
        yield made


async def test_it_is_asked_for_when_it_is_wanted_and_kept(tmp_path: Path) -> None:
    cluster = Cluster()
    async with running(cluster, tmp_path / "pki") as made:
        assert await made.next() == ""
        await asyncio.sleep(0.05)
        assert len(cluster.callers) < 1
        made.certificate.want(True)
        first = await made.next()
        assert first
        assert len(cluster.callers) == 1
        context = SSL.Context(SSL.TLS_SERVER_METHOD)
        assert made.certificate.current is not None
        made.certificate.current.use_in(context)
        context.check_privatekey()
        await until((tmp_path / "pki" / "peer.pem").exists)
    assert stat.S_IMODE((tmp_path / "pki" / "peer.pem").stat().st_mode) == 0o600
    async with running(cluster, tmp_path / "pki") as made:
        assert await made.next() == first
        made.certificate.want(True)
        await asyncio.sleep(0.1)
        assert len(cluster.callers) == 1


async def test_it_is_renewed_before_its_life_is_over(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.life = timedelta(seconds=3)
    async with running(cluster, tmp_path) as made:
        made.certificate.want(True)
        assert await made.next() == ""
        first = await made.next()
        cluster.life = timedelta(hours=1)
        second = await made.next()
        assert second not in ("", first)
        assert len(cluster.callers) == 2


async def test_a_port_asks_anew_when_two_thirds_of_its_certificates_life_are_over(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.life = timedelta(hours=3)
    async with running(cluster, tmp_path) as made:
        made.certificate.want(True)
        await made.next()
        await made.next()
        found, renewal = made.certificate.current, made.certificate._renewal
        assert isinstance(found, Pair)
        assert renewal is not None
        left = found.certificate.not_valid_after_utc - renewal
        assert timedelta(minutes=59) < left < timedelta(minutes=61)


async def test_another_address_of_the_node_needs_another_certificate(tmp_path: Path) -> None:
    cluster = Cluster()
    async with running(cluster, tmp_path) as made:
        made.certificate.want(True)
        await made.next()
        await made.next()
        cluster.address = "10.0.0.2"
        await made.next()
        found = made.certificate.current
        assert isinstance(found, Pair)
        assert names_of(found.certificate) == ("10.0.0.2",)


async def test_a_denial_is_logged_and_asked_again_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster()
    cluster.denial = "not this node"
    async with running(cluster, tmp_path) as made:
        made.certificate.want(True)
        assert await made.next() == ""
        await until(lambda: len(cluster.callers) > 1)
        cluster.denial = ""
        assert await made.next()
    assert "is denied: not this node" in caplog.text
    assert "is denied: not this node" in cluster.events[0]


async def test_files_that_are_no_pair_are_asked_for_anew(tmp_path: Path) -> None:
    first, other = (AUTHORITY.issue_server("n1", ["10.0.0.1"]) for _ in range(2))
    (tmp_path / "peer.pem").write_bytes(first.certificate + other.key)
    async with running(Cluster(), tmp_path) as made:
        assert await made.next() == ""


async def test_a_life_that_began_before_it_came_is_not_renewed_at_once() -> None:
    """kube-controller-manager lets a certificate begin 5 minutes before it signs, however short its life."""
    ends = datetime.now(UTC) + timedelta(seconds=90)
    request = base64.b64decode(client_request("n1", KEY)["spec"]["request"])
    pem = AUTHORITY.sign_request(request, timedelta(minutes=5, seconds=90), timedelta(minutes=5))
    certificate = x509.load_pem_x509_certificate(pem)
    now = datetime.now(UTC)
    assert renewal_of(certificate, now, 0.7) > now + timedelta(seconds=55)
    assert renewal_of(certificate, now, 0.9) < ends + timedelta(seconds=30)


async def test_a_new_certificate_that_is_not_in_date_blames_the_clock(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = datetime.now(UTC) + timedelta(days=400)
    cluster = Cluster()
    async with running(cluster, tmp_path) as made:
        await made.next()
        with monkeypatch.context() as patch:
            patch.setattr(asked_certificate, "now", lambda: late)
            patch.setattr(serving_certificate, "now", lambda: late)
            made.certificate.want(True)
            assert await made.next() == "", "nobody would believe it now"
            assert made.certificate.latest is not None
            await until(lambda: "set the clock (NTP)" in caplog.text)


async def test_it_is_asked_for_as_soon_as_the_cloud_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asked_certificate, "RETRIES", (3600.0, 3600.0))
    cluster = Cluster()
    cluster.is_there = False
    async with running(cluster, tmp_path) as made:
        assert await made.next() == ""
        made.certificate.want(True)
        await until(lambda: bool(cluster.hub.asked))
        cluster.is_there = True
        while made.news.empty():
            made.back.notify()
            await asyncio.sleep(0.01)
        assert await made.next()


async def test_it_is_for_what_else_the_port_is_called_by_and_the_cluster_certifies(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster()
    cluster.also = ("10.0.0.1", "169.254.2.1", "fd00::9:1")
    async with running(cluster, tmp_path) as made:
        made.certificate.want(True)
        await made.next()
        await made.next()
        found = made.certificate.current
        assert found is not None
        assert names_of(found.certificate) == ("10.0.0.1", "169.254.2.1")
        looks = len(cluster.hub.asked)
        await until(lambda: len(cluster.hub.asked) > looks + 1)
    assert sum("certifies fd00::9:1 for no node" in each for each in caplog.messages) == 1
    assert len(cluster.callers) == 1
