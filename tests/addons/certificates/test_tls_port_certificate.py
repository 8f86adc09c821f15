"""The TLS port's certificate under a running hub: which one is shown, and that the own one is renewed and replaced."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
from OpenSSL import SSL

from addons.certificates import tls_port_certificate as module
from addons.certificates.asked_certificate import AskedCertificate
from addons.certificates.serving_certificate import Pair, read_pair
from addons.certificates.tls_port_certificate import (
    RENEW_DAYS,
    OwnCertificate,
    TlsPortCertificate,
    own_certificate,
)
from tests.addons.support.observed import until
from tests.addons.support.tls_peers import client_context, shake_hands
from tests.cloud.pki import Authority
from tests.support.background import beside

AUTHORITY = Authority()
ADDRESSES = ("127.0.0.1", "10.0.0.5")


def serves(folder: Path, made: OwnCertificate, name: str) -> bool:
    """Whether a client that trusts the folder's CA completes a handshake."""
    server = SSL.Context(SSL.TLS_SERVER_METHOD)
    made.use_in(server)
    try:
        shake_hands(server, client_context((folder / "ca.crt").read_bytes()), name)
    except (SSL.Error, ValueError):
        return False
    return True


@contextlib.asynccontextmanager
async def running(made: OwnCertificate) -> AsyncIterator[None]:
    async with beside(made.run()):
        yield


async def test_a_certificate_that_ends_soon_is_renewed_under_a_running_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub once made its certificate at the start only, so it expired under a hub that ran for a year."""
    monkeypatch.setattr(module, "CHECK_INTERVAL", 0.01)
    made = OwnCertificate(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(module, "SERVING_DAYS", RENEW_DAYS - 1)
        made.sign(ADDRESSES)
    assert made._pair is not None
    first, authority = made._pair.certificate, (tmp_path / "ca.crt").read_bytes()
    async with running(made):
        await until(lambda: made._pair is not None and made._pair.certificate != first)
    assert made._pair.certificate.not_valid_after_utc > first.not_valid_after_utc
    assert serves(tmp_path, made, "10.0.0.5")
    assert (tmp_path / "ca.crt").read_bytes() == authority, "pods need no new CA"


async def test_another_address_is_served_soon(tmp_path: Path) -> None:
    made = OwnCertificate(tmp_path)
    made.sign(ADDRESSES)
    assert not serves(tmp_path, made, "10.0.0.6")
    async with running(made):
        made.move(["127.0.0.1", "10.0.0.6"])
        await until(lambda: serves(tmp_path, made, "10.0.0.6"))
    assert not serves(tmp_path, made, "10.0.0.5")


async def test_a_certificate_of_a_time_to_come_is_signed_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = OwnCertificate(tmp_path)
    made.sign(ADDRESSES)
    assert made._pair is not None
    first = made._pair.certificate

    earlier = first.not_valid_before_utc - datetime.timedelta(days=1)
    monkeypatch.setattr(module, "now", lambda: earlier)
    made.sign(ADDRESSES)
    assert made._pair.certificate.not_valid_before_utc < first.not_valid_before_utc


def broken(*_: object) -> None:
    raise OSError(30, "Read-only file system")


async def test_without_a_folder_the_first_certificate_is_made_elsewhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "pki").write_text("a file")
    made = OwnCertificate(tmp_path / "pki")
    made.sign(ADDRESSES)
    assert "cannot be written" in caplog.text
    assert serves(made._folder, made, "127.0.0.1")


async def test_a_renewal_that_fails_leaves_the_certificate_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No pod trusts the CA of another folder."""
    monkeypatch.setattr(module, "CHECK_INTERVAL", 0.01)
    made = OwnCertificate(tmp_path)
    made.sign(ADDRESSES)
    async with running(made):
        with monkeypatch.context() as patch:
            patch.setattr(module, "own_certificate", broken)
            made.move(["127.0.0.1", "10.0.0.6"])
            await until(lambda: "cannot be renewed" in caplog.text)
            assert serves(tmp_path, made, "10.0.0.5")
        await until(lambda: serves(tmp_path, made, "10.0.0.6"))


class Asked:
    """What the cluster has signed so far."""

    def __init__(self) -> None:
        self.current: Pair | None = None

    def sign(self, *names: str) -> Pair:
        issued = AUTHORITY.issue_server("n1", list(names))
        self.current = read_pair(issued.certificate + issued.key)
        return self.current


@pytest.mark.parametrize(
    ("called", "is_clusters"),
    [
        ("169.254.2.1", True),
        ("10.0.0.1", True),
        ("n1", True),
        ("127.0.0.1", False),
        ("kubernetes.default.svc", False),
        ("", False),
    ],
)
def test_what_was_called_decides(tmp_path: Path, called: str, is_clusters: bool) -> None:
    local, asked = own_certificate(tmp_path, ["127.0.0.1"]), Asked()
    port = TlsPortCertificate(local, cast(AskedCertificate, asked))
    assert port.shown_to(called) is local, "the cluster has signed nothing yet"
    signed = asked.sign("10.0.0.1", "169.254.2.1", "n1")
    assert port.shown_to(called) is (signed if is_clusters else local)


def test_a_renewed_certificate_is_read_anew(tmp_path: Path) -> None:
    asked = Asked()
    port = TlsPortCertificate(own_certificate(tmp_path, ["127.0.0.1"]), cast(AskedCertificate, asked))
    asked.sign("10.0.0.1")
    assert port.shown_to("10.0.0.1") is asked.current
    asked.sign("10.0.0.2")
    assert port.shown_to("10.0.0.1") is not asked.current
    assert port.shown_to("10.0.0.2") is asked.current


def test_its_end_is_that_of_what_pods_see(tmp_path: Path) -> None:
    local, asked = own_certificate(tmp_path, ["127.0.0.1"]), Asked()
    port = TlsPortCertificate(local, cast(AskedCertificate, asked))
    assert port.expiry() == local.expiry()
    signed = asked.sign("10.0.0.1")
    ends = signed.expiry()
    assert port.expiry() == ends
    assert ends is not None
    later = local.expiry()
    assert later is not None
    assert abs(later - ends) > datetime.timedelta(hours=1)
    assert TlsPortCertificate(local).expiry() == later
