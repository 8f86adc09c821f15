"""The certificate of the peer port: asked for when it is wanted, kept, and renewed in time."""

from __future__ import annotations

import asyncio
import base64
import json
import stat
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from OpenSSL import SSL

from addons.certificates import peer_certificate, signing_request
from addons.certificates.peer_certificate import AskedCertificate, GivenCertificate
from addons.certificates.serving_certificate import Pair, ServingCertificate, own_certificate
from tests.addons.support.scripted_client import Asked, ScriptedClient
from tests.cloud.pki import Authority

AUTHORITY = Authority()
PATIENCE = 20.0
"""Seconds that a test waits for what takes some milliseconds."""


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signing_request, "POLLS", (0.001, 0.001))
    monkeypatch.setattr(peer_certificate, "RETRIES", (0.01, 0.01))
    monkeypatch.setattr(peer_certificate, "CHECK_INTERVAL", 0.05)


class Cluster:
    """Signs every request at once, for `life`, unless it denies."""

    def __init__(self) -> None:
        self.address = "10.0.0.1"
        self.life = timedelta(hours=1)
        self.denial = ""
        self.requests = 0
        self._pem = b""
        self.client = ScriptedClient(self._answer)

    def _answer(self, asked: Asked) -> dict[str, Any]:
        if asked.path == "/api/v1/nodes/n1":
            return {"status": {"addresses": [{"type": "InternalIP", "address": self.address}]}}
        if asked.method == "POST":
            self.requests += 1
            self._pem = base64.b64decode(json.loads(asked.body)["spec"]["request"])
            return {"metadata": {"name": "one"}}
        if self.denial:
            return {"status": {"conditions": [{"type": "Denied", "message": self.denial}]}}
        made = AUTHORITY.sign_request(self._pem, self.life)
        return {"status": {"certificate": base64.b64encode(made).decode()}}


class Running:
    """A certificate that is seen to."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.certificate = AskedCertificate("n1", cluster.client, folder)
        self.news: asyncio.Queue[str] = asyncio.Queue()

    def changed(self) -> None:
        self.news.put_nowait(self.serial)

    @property
    def serial(self) -> str:
        """Which certificate there is now; "" for none."""
        found = self.certificate.current
        return str(cast(Pair, found).certificate.serial_number) if found is not None else ""

    async def next(self) -> str:
        async with asyncio.timeout(PATIENCE):
            return await self.news.get()


@asynccontextmanager
async def running(cluster: Cluster, folder: Path) -> AsyncIterator[Running]:
    made = Running(cluster, folder)
    task = asyncio.create_task(made.certificate.run(made.changed))
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(check: Callable[[], bool]) -> None:
    """Return when something holds that nothing tells of."""
    deadline = time.monotonic() + PATIENCE
    while not check():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def test_it_is_asked_for_when_it_is_wanted_and_kept(tmp_path: Path) -> None:
    cluster = Cluster()
    async with running(cluster, tmp_path / "pki") as made:
        assert await made.next() == ""
        await asyncio.sleep(0.05)
        assert cluster.requests < 1
        made.certificate.want(True)
        first = await made.next()
        assert first
        assert cluster.requests == 1
        context = SSL.Context(SSL.TLS_SERVER_METHOD)
        assert made.certificate.current is not None
        made.certificate.current.use_in(context)
        context.check_privatekey()
        await until((tmp_path / "pki" / "peer.crt").exists)
    for name in ("peer.crt", "peer.key"):
        assert stat.S_IMODE((tmp_path / "pki" / name).stat().st_mode) == 0o600
    async with running(cluster, tmp_path / "pki") as made:
        assert await made.next() == first
        made.certificate.want(True)
        await asyncio.sleep(0.1)
        assert cluster.requests == 1


async def test_it_is_renewed_at_two_thirds_of_its_life(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.life = timedelta(seconds=3)
    async with running(cluster, tmp_path) as made:
        made.certificate.want(True)
        assert await made.next() == ""
        first = await made.next()
        cluster.life = timedelta(hours=1)
        second = await made.next()
        assert second not in ("", first)
        assert cluster.requests == 2


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
        assert signing_request.names_of(found.certificate) == ("10.0.0.2",)


async def test_a_denial_is_logged_and_asked_again_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster()
    cluster.denial = "not this node"
    async with running(cluster, tmp_path) as made:
        made.certificate.want(True)
        assert await made.next() == ""
        await until(lambda: cluster.requests > 1)
        cluster.denial = ""
        assert await made.next()
    assert "is denied: not this node" in caplog.text


async def test_files_that_are_no_pair_are_asked_for_anew(tmp_path: Path) -> None:
    (tmp_path / "peer.crt").write_bytes(AUTHORITY.issue_server("n1", ["10.0.0.1"]).certificate)
    (tmp_path / "peer.key").write_bytes(AUTHORITY.issue_server("n1", ["10.0.0.1"]).key)
    async with running(Cluster(), tmp_path) as made:
        assert await made.next() == ""


async def test_the_operators_files_are_there_at_once(tmp_path: Path) -> None:
    own_certificate(tmp_path, ["10.0.0.1"])
    given = GivenCertificate(ServingCertificate(tmp_path / "serving.crt", tmp_path / "serving.key"))
    given.want(True)
    context = SSL.Context(SSL.TLS_SERVER_METHOD)
    assert given.current is not None
    given.current.use_in(context)
    context.check_privatekey()
    running_on = asyncio.create_task(given.run(lambda: None))
    await asyncio.sleep(0)
    running_on.cancel()
