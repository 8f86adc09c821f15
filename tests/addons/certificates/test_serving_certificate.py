"""The certificate of the TLS port: made, reused, renewed, and replaced when one of its files is damaged."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID
from OpenSSL import SSL

from addons.certificates import tls_port_certificate
from addons.certificates.serving_certificate import Certificate, GivenCertificate, ServingCertificate
from addons.certificates.tls_port_certificate import RENEW_DAYS, SERVICE_NAMES, own_certificate
from tests.addons.support.tls_peers import client_context, shake_hands
from tests.cloud.pki import Authority

ADDRESSES = ("127.0.0.1", "::1", "10.0.0.5")
FILES = ("ca.crt", "ca.key", "serving.crt", "serving.key")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state" / "pki"


def load(folder: Path, name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate((folder / name).read_bytes())


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in FILES}


def serves(folder: Path, made: Certificate, name: str = "127.0.0.1") -> bool:
    """Whether a client that trusts the folder's CA, by OpenSSL's strict rules, completes a handshake."""
    server = SSL.Context(SSL.TLS_SERVER_METHOD)
    try:
        made.use_in(server)
        shake_hands(server, client_context((folder / "ca.crt").read_bytes()), name)
    except (SSL.Error, ValueError):
        return False
    return True


def new_key() -> bytes:
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


@pytest.mark.parametrize("name", [*SERVICE_NAMES, *ADDRESSES])
def test_pods_that_trust_the_ca_can_call_the_hub_by_every_name(folder: Path, name: str) -> None:
    assert serves(folder, own_certificate(folder, ADDRESSES), name)


@pytest.mark.parametrize("name", ["example.com", "10.0.0.6", "kubernetes.default.svc.cluster.local.evil"])
def test_and_by_no_other(folder: Path, name: str) -> None:
    assert not serves(folder, own_certificate(folder, ADDRESSES), name)


def test_it_is_a_certificate_for_servers_signed_by_the_local_ca(folder: Path) -> None:
    own_certificate(folder, ADDRESSES)
    found, authority = load(folder, "serving.crt"), load(folder, "ca.crt")
    found.verify_directly_issued_by(authority)
    usage = found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert set(names.get_values_for_type(x509.DNSName)) == set(SERVICE_NAMES)
    assert set(names.get_values_for_type(x509.IPAddress)) == {
        ipaddress.ip_address(each) for each in ADDRESSES
    }
    constraints = authority.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert (constraints.ca, constraints.path_length) == (True, 0)
    now = datetime.datetime.now(datetime.UTC)
    assert found.not_valid_before_utc < now < found.not_valid_after_utc < authority.not_valid_after_utc


def test_nobody_else_may_read_the_files(folder: Path) -> None:
    own_certificate(folder, ADDRESSES)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert {path.name for path in folder.iterdir()} == set(FILES), "no draft is left"


def test_a_second_start_uses_what_is_there(folder: Path) -> None:
    own_certificate(folder, ADDRESSES)
    before = contents(folder)
    made = own_certificate(folder, ["0:0:0:0:0:0:0:1", *ADDRESSES[::-1]])
    assert contents(folder) == before
    assert serves(folder, made)


def test_another_address_makes_a_new_certificate_of_the_same_ca(folder: Path) -> None:
    own_certificate(folder, ADDRESSES)
    before = contents(folder)
    made = own_certificate(folder, [*ADDRESSES, "10.0.0.6"])
    after = contents(folder)
    assert {name for name in FILES if before[name] == after[name]} == {"ca.crt", "ca.key"}
    assert serves(folder, made, "10.0.0.6")


@pytest.mark.parametrize(("days", "renewed"), [(RENEW_DAYS - 1, True), (RENEW_DAYS + 1, False)])
def test_it_is_renewed_in_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch, days: int, renewed: bool
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(tls_port_certificate, "SERVING_DAYS", days)
        own_certificate(folder, ADDRESSES)
    before = contents(folder)
    own_certificate(folder, ADDRESSES)
    after = contents(folder)
    assert (after["serving.crt"] != before["serving.crt"]) is renewed
    assert after["ca.crt"] == before["ca.crt"], "pods need no new CA"


@pytest.mark.parametrize("content", [b"", b"garbage", None])
@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_gone_or_not_whole_is_mended(folder: Path, name: str, content: bytes | None) -> None:
    own_certificate(folder, ADDRESSES)
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    assert serves(folder, own_certificate(folder, ADDRESSES))


@pytest.mark.parametrize("name", ["serving.key", "ca.key"])
def test_a_key_that_belongs_to_another_certificate_is_mended(folder: Path, name: str) -> None:
    """A stop between the two files of a pair leaves the new key with the old certificate."""
    own_certificate(folder, ADDRESSES)
    (folder / name).write_bytes(new_key())
    if name == "ca.key":
        (folder / "serving.crt").unlink()
    assert serves(folder, own_certificate(folder, ADDRESSES))


def test_a_certificate_of_another_ca_is_made_anew(folder: Path) -> None:
    own_certificate(folder, ADDRESSES)
    (folder / "serving.crt").write_bytes(Authority().issue_server("x", ADDRESSES).certificate)
    assert serves(folder, own_certificate(folder, ADDRESSES))


def test_a_ca_key_of_another_kind_is_none_of_ours(folder: Path) -> None:
    own_certificate(folder, ADDRESSES)
    other = ed25519.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "ca.key").write_bytes(other)
    (folder / "serving.crt").unlink()
    assert serves(folder, own_certificate(folder, ADDRESSES))


def test_a_folder_that_cannot_be_made_is_an_os_error(tmp_path: Path) -> None:
    (tmp_path / "pki").write_text("a file")
    with pytest.raises(OSError, match="pki"):
        own_certificate(tmp_path / "pki", ADDRESSES)


def test_the_operators_certificate_is_used_as_it_is_at_each_connection(tmp_path: Path) -> None:
    authority = Authority()
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    made = ServingCertificate(*authority.issue_server("one", ["127.0.0.1"]).write(tmp_path, "mine"))
    assert serves(tmp_path, made)
    authority.issue_server("two", ["10.0.0.9"]).write(tmp_path, "mine")
    assert serves(tmp_path, made, "10.0.0.9"), "it was rotated"


def test_files_that_are_no_certificate_are_an_error_of_openssl(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("garbage")
    with pytest.raises(SSL.Error):
        ServingCertificate(tmp_path / "x", tmp_path / "x").use_in(SSL.Context(SSL.TLS_SERVER_METHOD))


def test_a_planted_draft_gets_no_key(tmp_path: Path) -> None:
    """Somebody who could write to the folder once has left a link where the key is drafted."""
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
