"""The hub's own identity: by a bootstrap token first, by its own certificate later; and the words for refusals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest

from addons.certificates.node_certificate import IdentifiedSession, NodeCertificate, kept_credentials
from addons.requests.clients import Clients
from kube.concurrency.pulse import Pulse
from kube.http.kubeconfig import load_kubeconfig
from kube.http.session import Response, Session
from tests.addons.support.observed import until
from tests.addons.support.signing_cluster import AUTHORITY, SigningCluster
from tests.cloud.kubeconfig import write_kubeconfig
from tests.support.background import beside


@pytest.fixture
def bootstrap(tmp_path: Path) -> Path:
    return write_kubeconfig(
        tmp_path / "bootstrap.conf", "https://c", authority=AUTHORITY.certificate, token="a.b"
    )


@asynccontextmanager
async def running(made: NodeCertificate, cloud: SigningCluster) -> AsyncIterator[None]:
    async with beside(made.run(cast(Clients, cloud), Pulse())):
        yield


async def test_a_token_asks_first_and_the_node_itself_later(tmp_path: Path, bootstrap: Path) -> None:
    cloud = SigningCluster()
    cloud.life = timedelta(seconds=2)
    made = NodeCertificate(bootstrap, "n1", tmp_path)
    assert not made.credentials.certificate.read()
    assert not made.credentials.bearer, "no request but the first ones travels with the token"
    async with running(made, cloud):
        await made.known.wait()
        first = made.credentials.certificate.read()
        cloud.life = timedelta(hours=1)
        await until(lambda: made.credentials.certificate.read() != first)
    assert cloud.callers == ["Bearer a.b", "hub"]
    kept = kept_credentials(load_kubeconfig(bootstrap), tmp_path)
    assert kept.certificate.read() == kept.key.read() == made.credentials.certificate.read()
    assert not kept.bearer


async def test_a_kept_identity_needs_no_token(tmp_path: Path, bootstrap: Path) -> None:
    issued = AUTHORITY.issue_node("n1")
    (tmp_path / "pki").mkdir()
    (tmp_path / "pki" / "node.pem").write_bytes(issued.certificate + issued.key)
    cloud = SigningCluster()
    made = NodeCertificate(bootstrap, "n1", tmp_path)
    async with running(made, cloud):
        await made.known.wait()
    assert cloud.callers == []


@pytest.mark.parametrize(
    ("code", "words"),
    [(401, "does not take the token of"), (403, "system:node-bootstrapper"), (500, "says the cloud")],
)
async def test_a_refusal_is_told_in_words_until_it_ends(
    tmp_path: Path, bootstrap: Path, caplog: pytest.LogCaptureFixture, code: int, words: str
) -> None:
    cloud = SigningCluster()
    cloud.refusal = {"Bearer a.b": code}
    made = NodeCertificate(bootstrap, "n1", tmp_path)
    async with running(made, cloud):
        await until(lambda: words in caplog.text)
        assert not made.known.is_set()
        assert words in made.why_unknown
        assert not cloud.events, "a hub without an identity can send none"
        cloud.refusal = {}
        await until(made.known.is_set)
        assert not made.why_unknown


async def test_an_identity_that_ended_goes_back_to_a_token_which_may_be_new(
    tmp_path: Path, bootstrap: Path
) -> None:
    ended = AUTHORITY.issue_node("n1", timedelta(seconds=-60))
    (tmp_path / "pki").mkdir()
    (tmp_path / "pki" / "node.pem").write_bytes(ended.certificate + ended.key)
    cloud = SigningCluster()
    cloud.refusal = {"Bearer a.b": 401}
    made = NodeCertificate(bootstrap, "n1", tmp_path)
    async with running(made, cloud):
        await made.known.wait()
        await until(lambda: bool(cloud.events))
        assert "kubeadm token create" in cloud.events[0]
        write_kubeconfig(bootstrap, "https://c", token="c.d")
        await until(lambda: not made.credentials.certificate.read().startswith(ended.certificate))
    assert cloud.callers[-1] == "Bearer c.d"
    assert "hub" not in cloud.callers


async def test_a_certificate_that_the_cloud_refuses_is_replaced_by_the_token(
    tmp_path: Path, bootstrap: Path
) -> None:
    """By this node's clock it holds; the cloud's clock, or another CA, may say otherwise."""
    cloud = SigningCluster()
    cloud.life = timedelta(seconds=2)
    cloud.refusal = {"hub": 401}
    async with running(NodeCertificate(bootstrap, "n1", tmp_path), cloud):
        await until(lambda: cloud.callers[-2:] == ["hub", "Bearer a.b"])


def test_a_kubeconfig_without_a_token_is_refused(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "conf", "https://c")
    with pytest.raises(ValueError, match="the hub bootstraps by a token"):
        NodeCertificate(path, "n1", tmp_path)


def test_before_the_first_certificate_the_token_is_what_there_is(tmp_path: Path, bootstrap: Path) -> None:
    assert kept_credentials(load_kubeconfig(bootstrap), tmp_path).bearer == "Bearer a.b"


class Opened:
    """A session that counts its requests."""

    count = 0

    @asynccontextmanager
    async def open(
        self, method: str, url: str, *, headers: Iterable[tuple[str, str]], body: bytes | None, timeout: float
    ) -> AsyncIterator[Response]:
        self.count += 1
        yield cast(Response, None)


async def test_requests_with_the_hubs_identity_wait_for_it() -> None:
    opened, known = Opened(), asyncio.Event()
    session = IdentifiedSession(cast(Session, opened), known)

    async def ask() -> None:
        async with session.open("GET", "/", headers=(), body=None, timeout=1.0):
            pass

    waiting = asyncio.create_task(ask())
    await asyncio.sleep(0)
    assert opened.count == 0
    known.set()
    await waiting
    assert opened.count == 1
