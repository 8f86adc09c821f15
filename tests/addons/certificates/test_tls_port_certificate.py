"""The certificates of the hub's own ports: issued, stored, renewed, and presented in a handshake."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import os
import stat
from pathlib import Path
from typing import cast

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID
from OpenSSL import SSL

from addons.certificates import tls_port_certificate
from addons.certificates import tls_port_certificate as module
from addons.certificates.requested_certificate import RequestedCertificate
from addons.certificates.serving_certificate import (
    Certificate,
    Pair,
    ServingCertificate,
    StaticCertificate,
    read_pair,
)
from addons.certificates.tls_port_certificate import (
    RENEW_DAYS,
    SERVICE_NAMES,
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


async def test_an_expiring_certificate_is_renewed_in_a_running_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub once issued its certificate only at its start, so it expired in a hub that ran for a year."""
    monkeypatch.setattr(module, "CHECK_INTERVAL", 0.01)
    made = OwnCertificate(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(module, "SERVING_DAYS", RENEW_DAYS - 1)
        made.sign(ADDRESSES)
    first, authority = made.current().certificate, (tmp_path / "ca.crt").read_bytes()
    async with beside(made.run()):
        await until(lambda: made.current().certificate != first)
    assert made.current().certificate.not_valid_after_utc > first.not_valid_after_utc
    assert completes(tmp_path, made.current(), "10.0.0.5")
    assert (tmp_path / "ca.crt").read_bytes() == authority, "pods need no new CA"


async def test_a_new_address_is_added_to_the_served_certificate(tmp_path: Path) -> None:
    made = OwnCertificate(tmp_path)
    made.sign(ADDRESSES)
    assert not completes(tmp_path, made.current(), "10.0.0.6")
    async with beside(made.run()):
        made.move(["127.0.0.1", "10.0.0.6"])
        await until(lambda: completes(tmp_path, made.current(), "10.0.0.6"))
    assert not completes(tmp_path, made.current(), "10.0.0.5")


async def test_a_certificate_that_is_not_yet_valid_is_issued_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = OwnCertificate(tmp_path)
    made.sign(ADDRESSES)
    first = made.current().certificate

    earlier = first.not_valid_before_utc - datetime.timedelta(days=1)
    monkeypatch.setattr(module, "now", lambda: earlier)
    made.sign(ADDRESSES)
    assert made.current().certificate.not_valid_before_utc < first.not_valid_before_utc


async def test_an_unwritable_folder_moves_the_certificate_to_a_temporary_folder(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "pki").write_text("a file")
    made = OwnCertificate(tmp_path / "pki")
    made.sign(ADDRESSES)
    assert "cannot be written" in caplog.text
    assert completes(made._folder, made.current(), "127.0.0.1")


async def test_a_failed_renewal_retains_the_certificate_and_is_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No pod trusts the CA of another folder."""

    def broken(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(module, "CHECK_INTERVAL", 0.01)
    made = OwnCertificate(tmp_path)
    made.sign(ADDRESSES)
    async with beside(made.run()):
        with monkeypatch.context() as patch:
            patch.setattr(module, "own_certificate", broken)
            made.move(["127.0.0.1", "10.0.0.6"])
            await until(lambda: "cannot be renewed" in caplog.text)
            assert completes(tmp_path, made.current(), "10.0.0.5")
        await until(lambda: completes(tmp_path, made.current(), "10.0.0.6"))


class Asked:
    """A requested certificate whose cluster signs when the test says so."""

    def __init__(self) -> None:
        self.current: Pair | None = None
        self.latest: Pair | None = None

    def sign(self, *names: str) -> Pair:
        issued = AUTHORITY.issue_server("n1", list(names))
        self.current = self.latest = read_pair(issued.certificate + issued.key)
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
def test_the_tls_port_presents_the_certificate_that_matches_the_called_name(
    tmp_path: Path, called: str, is_clusters: bool
) -> None:
    local, asked = own_certificate(tmp_path, ["127.0.0.1"]), Asked()
    port = TlsPortCertificate(lambda: local, cast(RequestedCertificate, asked))
    assert port.shown_to(called) is local, "the cluster has signed nothing yet"
    signed = asked.sign("10.0.0.1", "169.254.2.1", "n1")
    assert port.shown_to(called) is (signed if is_clusters else local)


def test_pods_get_the_hubs_address_only_if_they_can_verify_its_certificate(tmp_path: Path) -> None:
    local, asked, hosts = own_certificate(tmp_path, ["127.0.0.1"]), Asked(), ("169.254.2.1", "fd00::2:1")
    assert TlsPortCertificate(lambda: local).trusted_hosts(hosts) == hosts, "the operator gives pods the CA"
    port = TlsPortCertificate(lambda: local, cast(RequestedCertificate, asked))
    assert port.trusted_hosts(hosts) == ()
    asked.sign("10.0.0.1", "169.254.2.1")
    assert port.trusted_hosts(hosts) == ("169.254.2.1",)
    asked.current = None
    assert port.trusted_hosts(hosts) == ("169.254.2.1",), "a renewal that is late changes no address"


def test_the_tls_port_reports_the_expiry_of_the_certificate_for_pods(tmp_path: Path) -> None:
    local, asked = own_certificate(tmp_path, ["127.0.0.1"]), Asked()
    port = TlsPortCertificate(lambda: local, cast(RequestedCertificate, asked))
    assert port.expiry() == local.expiry()
    signed = asked.sign("10.0.0.1")
    ends = signed.expiry()
    assert port.expiry() == ends
    assert ends is not None
    later = local.expiry()
    assert later is not None
    assert abs(later - ends) > datetime.timedelta(hours=1)
    assert TlsPortCertificate(lambda: local).expiry() == later


SERVED = ("127.0.0.1", "::1", "10.0.0.5")
FILES = ("ca.crt", "ca.key", "serving.crt", "serving.key")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state" / "pki"


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in FILES}


def completes(folder: Path, made: Certificate, name: str = "127.0.0.1") -> bool:
    """Return True if a client that trusts the folder's CA, by OpenSSL's strict rules, completes a handshake."""
    server = SSL.Context(SSL.TLS_SERVER_METHOD)
    try:
        made.use_in(server)
        shake_hands(server, client_context((folder / "ca.crt").read_bytes()), name)
    except (SSL.Error, ValueError):
        return False
    return True


@pytest.mark.parametrize("name", [*SERVICE_NAMES, *SERVED])
def test_pods_that_trust_the_ca_can_call_the_hub_by_every_name(folder: Path, name: str) -> None:
    assert completes(folder, own_certificate(folder, SERVED), name)


@pytest.mark.parametrize("name", ["example.com", "10.0.0.6", "kubernetes.default.svc.cluster.local.evil"])
def test_a_handshake_for_an_uncertified_name_fails(folder: Path, name: str) -> None:
    assert not completes(folder, own_certificate(folder, SERVED), name)


def test_the_serving_certificate_is_for_servers_and_signed_by_the_local_ca(folder: Path) -> None:
    def load(folder: Path, name: str) -> x509.Certificate:
        return x509.load_pem_x509_certificate((folder / name).read_bytes())

    own_certificate(folder, SERVED)
    found, authority = load(folder, "serving.crt"), load(folder, "ca.crt")
    found.verify_directly_issued_by(authority)
    usage = found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert set(names.get_values_for_type(x509.DNSName)) == set(SERVICE_NAMES)
    assert set(names.get_values_for_type(x509.IPAddress)) == {ipaddress.ip_address(each) for each in SERVED}
    constraints = authority.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert (constraints.ca, constraints.path_length) == (True, 0)
    now = datetime.datetime.now(datetime.UTC)
    assert found.not_valid_before_utc < now < found.not_valid_after_utc < authority.not_valid_after_utc


def test_files_of_the_certificate_authority_are_readable_by_their_owner_alone(folder: Path) -> None:
    own_certificate(folder, SERVED)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert {path.name for path in folder.iterdir()} == set(FILES), "no draft is left"


def test_a_second_start_reuses_the_certificate_files(folder: Path) -> None:
    own_certificate(folder, SERVED)
    before = contents(folder)
    made = own_certificate(folder, ["0:0:0:0:0:0:0:1", *SERVED[::-1]])
    assert contents(folder) == before
    assert completes(folder, made)


@pytest.mark.timeout(10)
@pytest.mark.parametrize("name", FILES)
def test_a_fifo_at_the_path_of_a_file_is_replaced_and_does_not_block_the_start(
    folder: Path, name: str
) -> None:
    own_certificate(folder, SERVED)
    (folder / name).unlink()
    os.mkfifo(folder / name)
    assert completes(folder, own_certificate(folder, SERVED))


def test_another_address_issues_a_new_certificate_by_the_same_ca(folder: Path) -> None:
    own_certificate(folder, SERVED)
    before = contents(folder)
    made = own_certificate(folder, [*SERVED, "10.0.0.6"])
    after = contents(folder)
    assert {name for name in FILES if before[name] == after[name]} == {"ca.crt", "ca.key"}
    assert completes(folder, made, "10.0.0.6")


@pytest.mark.parametrize(("days", "renewed"), [(RENEW_DAYS - 1, True), (RENEW_DAYS + 1, False)])
def test_a_stored_certificate_is_renewed_before_it_expires(
    folder: Path, monkeypatch: pytest.MonkeyPatch, days: int, renewed: bool
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(tls_port_certificate, "SERVING_DAYS", days)
        own_certificate(folder, SERVED)
    before = contents(folder)
    own_certificate(folder, SERVED)
    after = contents(folder)
    assert (after["serving.crt"] != before["serving.crt"]) is renewed
    assert after["ca.crt"] == before["ca.crt"], "pods need no new CA"


@pytest.mark.parametrize("content", [b"", b"garbage", None])
@pytest.mark.parametrize("name", FILES)
def test_a_missing_or_truncated_file_is_replaced(folder: Path, name: str, content: bytes | None) -> None:
    own_certificate(folder, SERVED)
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    assert completes(folder, own_certificate(folder, SERVED))


@pytest.mark.parametrize("name", ["serving.key", "ca.key"])
def test_a_key_of_another_certificate_is_replaced(folder: Path, name: str) -> None:
    """A crash between the two files of a pair leaves the new key with the old certificate."""

    def new_key() -> bytes:
        return ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    own_certificate(folder, SERVED)
    (folder / name).write_bytes(new_key())
    if name == "ca.key":
        (folder / "serving.crt").unlink()
    assert completes(folder, own_certificate(folder, SERVED))


def test_a_certificate_of_another_ca_is_replaced(folder: Path) -> None:
    own_certificate(folder, SERVED)
    (folder / "serving.crt").write_bytes(Authority().issue_server("x", SERVED).certificate)
    assert completes(folder, own_certificate(folder, SERVED))


def test_a_ca_key_of_another_algorithm_is_replaced(folder: Path) -> None:
    own_certificate(folder, SERVED)
    other = ed25519.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "ca.key").write_bytes(other)
    (folder / "serving.crt").unlink()
    assert completes(folder, own_certificate(folder, SERVED))


def test_a_folder_that_cannot_be_made_is_an_os_error(tmp_path: Path) -> None:
    (tmp_path / "pki").write_text("a file")
    with pytest.raises(OSError, match="pki"):
        own_certificate(tmp_path / "pki", SERVED)


def test_the_operators_certificate_is_used_unmodified_for_each_connection(tmp_path: Path) -> None:
    authority = Authority()
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    made = ServingCertificate(*authority.issue_server("one", ["127.0.0.1"]).write(tmp_path, "mine"))
    assert completes(tmp_path, made)
    authority.issue_server("two", ["10.0.0.9"]).write(tmp_path, "mine")
    assert completes(tmp_path, made, "10.0.0.9"), "it was rotated"


def test_files_without_a_certificate_raise_an_openssl_error(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("garbage")
    with pytest.raises(SSL.Error):
        ServingCertificate(tmp_path / "x", tmp_path / "x").use_in(SSL.Context(SSL.TLS_SERVER_METHOD))


def test_a_symbolic_link_at_the_temporary_file_gets_no_key(tmp_path: Path) -> None:
    """A former owner of the folder has left a symbolic link at the path of the key's temporary file."""
    (tmp_path / "theirs").write_text("")
    folder = tmp_path / "pki"
    folder.mkdir()
    for name in ("ca.key.new", "serving.key.new"):
        (folder / name).symlink_to(tmp_path / "theirs")
    own_certificate(folder, ["127.0.0.1"])
    assert (tmp_path / "theirs").read_text() == ""
    for name in ("ca.key", "serving.key"):
        assert not (folder / name).is_symlink()
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600


async def test_the_operators_certificate_is_served_without_a_signing_request(tmp_path: Path) -> None:
    own_certificate(tmp_path, ["10.0.0.1"])
    given = StaticCertificate(ServingCertificate(tmp_path / "serving.crt", tmp_path / "serving.key"))
    given.want(True)
    context = SSL.Context(SSL.TLS_SERVER_METHOD)
    assert given.current is not None
    given.current.use_in(context)
    context.check_privatekey()
    running_on = asyncio.create_task(given.run(lambda: None))
    await asyncio.sleep(0)
    running_on.cancel()
