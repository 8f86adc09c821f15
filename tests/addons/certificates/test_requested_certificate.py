"""A certificate that the cluster signs: the signing request, its denial, and the renewal."""

from __future__ import annotations

import asyncio
import base64
import json
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from OpenSSL import SSL

from addons.certificates import requested_certificate, serving_certificate, signing_request
from addons.certificates.client_certificates import node_of
from addons.certificates.requested_certificate import renewal_of, serving_certificate_of
from addons.certificates.serving_certificate import Pair
from addons.certificates.signing_request import (
    SigningFailed,
    client_request,
    event_of,
    event_sender,
    node_names,
    serving_request,
    signed_certificate,
)
from kube.certificate_authority import names_of
from kube.concurrency.notifier import Notifier
from tests.addons.support.observed import until
from tests.addons.support.scripted_client import Asked, ScriptedClient
from tests.addons.support.signing_cluster import AUTHORITY, SigningCluster
from tests.support.background import beside

KEY = ec.generate_private_key(ec.SECP256R1())
PATIENCE = 20.0
"""Seconds that a test waits for an event that takes milliseconds."""


class Cluster(SigningCluster):
    """A signing cluster for a node whose hub is also called by these addresses."""

    also: tuple[str, ...] = ()


class Running:
    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.back = Notifier()
        self.certificate = serving_certificate_of(
            "peer", "n1", cluster.hub, folder / "peer.pem", self.back, lambda: cluster.also
        )
        self.news: asyncio.Queue[str] = asyncio.Queue()

    def changed(self) -> None:
        self.news.put_nowait(self.serial)

    @property
    def serial(self) -> str:
        """The serial of the current certificate; "" for none."""
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


async def test_a_certificate_is_requested_once_wanted_and_reused_after_a_restart(tmp_path: Path) -> None:
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


async def test_a_certificate_is_renewed_before_it_expires(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("document", [[], {}, {"status": "ok"}, {"status": {"addresses": ["a"]}}, None])
async def test_a_certificate_is_requested_again_after_any_server_error(
    tmp_path: Path, document: object
) -> None:
    cluster = Cluster()
    answer, odd = cluster.hub.script, 6
    asked = 0

    def spoiled(request: Asked) -> Any:
        nonlocal asked
        asked += not request.path.endswith("/events")
        return document if asked <= odd else answer(request)

    cluster.hub.script = spoiled
    async with running(cluster, tmp_path) as made:
        made.certificate.want(True)
        assert await made.next() == ""
        assert await made.next() != ""


async def test_a_serving_certificate_is_renewed_after_two_thirds_of_its_lifetime(tmp_path: Path) -> None:
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


async def test_a_new_address_of_the_node_requests_a_new_certificate(tmp_path: Path) -> None:
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


async def test_a_denied_request_is_logged_and_repeated_later(
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


async def test_a_mismatched_certificate_and_key_are_replaced(tmp_path: Path) -> None:
    first, other = (AUTHORITY.issue_server("n1", ["10.0.0.1"]) for _ in range(2))
    (tmp_path / "peer.pem").write_bytes(first.certificate + other.key)
    async with running(Cluster(), tmp_path) as made:
        assert await made.next() == ""


async def test_a_backdated_certificate_is_not_renewed_at_once() -> None:
    """kube-controller-manager lets a certificate begin 5 minutes before it signs, however short its life."""
    ends = datetime.now(UTC) + timedelta(seconds=90)
    request = base64.b64decode(client_request("n1", KEY)["spec"]["request"])
    pem = AUTHORITY.sign_request(request, timedelta(minutes=5, seconds=90), timedelta(minutes=5))
    certificate = x509.load_pem_x509_certificate(pem)
    now = datetime.now(UTC)
    assert renewal_of(certificate, now, 0.7) > now + timedelta(seconds=55)
    assert renewal_of(certificate, now, 0.9) < ends + timedelta(seconds=30)


async def test_a_new_certificate_outside_its_validity_is_reported_as_a_clock_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = datetime.now(UTC) + timedelta(days=400)
    cluster = Cluster()
    async with running(cluster, tmp_path) as made:
        await made.next()
        with monkeypatch.context() as patch:
            patch.setattr(requested_certificate, "now", lambda: late)
            patch.setattr(serving_certificate, "now", lambda: late)
            made.certificate.want(True)
            assert await made.next() == "", "nobody would believe it now"
            assert made.certificate.latest is not None
            await until(lambda: "set the clock (NTP)" in caplog.text)


async def test_a_certificate_is_requested_as_soon_as_the_cloud_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requested_certificate, "RETRIES", (3600.0, 3600.0))
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


async def test_a_certificate_names_the_additional_addresses_that_the_cluster_signs(
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
    assert sum("signs no certificate for fd00::9:1" in each for each in caplog.messages) == 1
    assert len(cluster.callers) == 1


async def ignore(_why: str) -> None:
    """Ignore a notification."""


class Signer:
    """A cluster that accepts a signing request and answers it at the second poll."""

    def __init__(self, **answer: Any) -> None:
        self.answer = answer
        self.created: dict[str, Any] = {}
        self.looks = 0

    def __call__(self, asked: Asked) -> dict[str, Any]:
        if asked.method == "POST":
            assert asked.path == "/apis/certificates.k8s.io/v1/certificatesigningrequests"
            self.created = json.loads(asked.body)
            return {"metadata": {"name": "edgehub-peer-n1-x7"}}
        assert asked.path.endswith("/certificatesigningrequests/edgehub-peer-n1-x7")
        self.looks += 1
        return {"status": self.answer if self.looks > 1 else {}}


async def test_the_signing_request_for_a_serving_certificate_equals_kubelets() -> None:
    names = ("10.0.0.1", "n1.example")
    signer = Signer(certificate=base64.b64encode(b"signed").decode())
    assert (
        await signed_certificate(ScriptedClient(signer), serving_request("n1", names, KEY), ignore)
        == b"signed"
    )
    assert signer.created["metadata"]["annotations"] == {"edgehub.io/peer": "true"}
    spec = signer.created["spec"]
    assert spec["signerName"] == "kubernetes.io/kubelet-serving"
    assert spec["usages"] == ["digital signature", "server auth"]
    made = AUTHORITY.sign_request(base64.b64decode(spec["request"]), timedelta(hours=1))
    certificate = x509.load_pem_x509_certificate(made)
    assert node_of(certificate) == "n1"
    assert names_of(certificate) == names
    assert certificate.public_key() == KEY.public_key()


async def test_the_signing_request_for_the_nodes_identity_equals_kubelets() -> None:
    request = client_request("n1", KEY)
    assert "annotations" not in request["metadata"], "it is nothing for the manager"
    assert request["spec"]["signerName"] == "kubernetes.io/kube-apiserver-client-kubelet"
    assert request["spec"]["usages"] == ["digital signature", "client auth"]
    asked = x509.load_pem_x509_csr(base64.b64decode(request["spec"]["request"]))
    assert asked.subject.rfc4514_string() == "CN=system:node:n1,O=system:nodes"
    assert not list(asked.extensions)


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        ({"type": "Denied", "message": "wrong address"}, "denied: wrong address"),
        ({"type": "Failed", "reason": "SignerValidationFailure"}, "failed: SignerValidationFailure"),
        ({"type": "Denied"}, "denied: no reason given"),
    ],
)
async def test_a_refused_signing_request_fails_with_the_reason_of_its_condition(
    condition: dict[str, str], text: str
) -> None:
    with pytest.raises(SigningFailed, match=text):
        await signed_certificate(
            ScriptedClient(Signer(conditions=[condition])), client_request("n1", KEY), ignore
        )


async def test_a_pending_signing_request_is_reported_once_and_polled_until_it_is_signed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(signing_request, "REPORT_AFTER", 0.02)
    monkeypatch.setattr(signing_request, "SLOW_POLLS", 0.001)
    signer, notified = Signer(), list[str]()

    async def tell(why: str) -> None:
        notified.append(why)
        signer.answer = {"certificate": base64.b64encode(b"late").decode()}

    assert await signed_certificate(ScriptedClient(signer), client_request("n1", KEY), tell) == b"late"
    assert notified == ["certificate request edgehub-peer-n1-x7 is pending: it needs an approval"]


async def test_a_pending_request_is_abandoned_after_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signing_request, "REQUEST_LIFE", 0.05)
    with pytest.raises(SigningFailed, match="was not answered for a day"):
        await signed_certificate(ScriptedClient(Signer()), client_request("n1", KEY), ignore)


async def test_the_certificate_names_are_the_nodes_names_and_addresses() -> None:
    named = {"n1": "Hostname", "10.0.0.1": "InternalIP", "n1.example": "ExternalDNS", "fe80::1": "InternalIP"}
    addresses = [{"type": kind, "address": name} for name, kind in named.items()]
    client = ScriptedClient(lambda _: {"status": {"addresses": addresses}})
    assert await node_names(client, "n1") == ("10.0.0.1", "n1")
    with pytest.raises(SigningFailed, match="no addresses"):
        await node_names(ScriptedClient(lambda _: {}), "n1")


# -- Events for operators ------------------------------------------------------------------------------------------


def test_a_repeated_reason_updates_the_same_event() -> None:
    first, later = (
        event_of("n1", "of this node", "it is denied", datetime(2026, 1, day, tzinfo=UTC)) for day in (1, 2)
    )
    other = event_of("n1", "of this node", "nobody answers", datetime(2026, 1, 1, tzinfo=UTC))
    assert first["metadata"] == later["metadata"] != other["metadata"]
    assert first["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n1"}
    assert first["message"] == "the hub has no new certificate of this node: it is denied"


def test_a_long_reason_is_truncated_to_the_limit_of_the_api() -> None:
    message = event_of("n1", "of this node", "x" * 5000, datetime.now(UTC))["message"]
    assert isinstance(message, str)
    assert len(message) == 1024


async def test_an_event_of_a_node_is_sent_to_the_default_namespace() -> None:
    client = ScriptedClient(lambda _: {})
    await event_sender(client, "n1", "of this node")("it is denied")
    (asked,) = client.asked
    assert (asked.method, asked.path) == ("POST", "/api/v1/namespaces/default/events")
    assert json.loads(asked.body)["reason"] == "NoCertificate"
