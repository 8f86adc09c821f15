"""The TLS port's certificate under a running hub: renewed in time, replaced with the addresses, without a restart."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from OpenSSL import SSL

from addons.certificates import own_certificate as module
from addons.certificates import serving_certificate
from addons.certificates.own_certificate import OwnCertificate
from addons.certificates.serving_certificate import RENEW_DAYS
from tests.addons.support.observed import until
from tests.addons.support.tls_peers import client_context, shake_hands
from tests.support.background import beside

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
        patch.setattr(serving_certificate, "SERVING_DAYS", RENEW_DAYS - 1)
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
    monkeypatch.setattr(serving_certificate, "now", lambda: earlier)
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
