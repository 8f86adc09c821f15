"""TLS to the cloud, by real handshakes: the servers that the hub trusts, and the certificate that it presents."""

from __future__ import annotations

import ssl
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from OpenSSL import SSL

from addons.link.tls import Expected, UpstreamTls, client_context, connection_to, is_named, refusal_of
from kube.http.kubeconfig import NO_CREDENTIALS, Cluster, Credentials, DataOrFile, User, parse_kubeconfig
from tests.addons.support.tls_peers import meet
from tests.cloud.pki import Authority, Credential

HTTP1 = [b"http/1.1"]
BOTH = [b"h2", b"http/1.1"]


def common_name(certificate: bytes | None) -> str:
    """Return the common name in a client's certificate (DER); "" for none."""
    if certificate is None:
        return ""
    names = x509.load_der_x509_certificate(certificate).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value)


class TlsServer:
    """Complete a handshake with each client, and record its certificate. Accepts only certificates of the authority."""

    def __init__(self, folder: Path, authority: Authority, server: Credential) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(*server.write(folder, "server"))
        self.context.load_verify_locations(cadata=authority.certificate.decode())
        self.context.verify_mode = ssl.CERT_OPTIONAL
        self.context.set_alpn_protocols(["h2", "http/1.1"])
        self.context.set_servername_callback(lambda _conn, name, _context: self.names.append(name))
        self.names: list[str | None] = []
        self.shown: list[str] = []
        """The common name in each client's certificate, "" for none."""


@pytest.fixture
def authority() -> Authority:
    return Authority()


@pytest.fixture
def server(tmp_path: Path, authority: Authority) -> TlsServer:
    credential = authority.issue_server(
        "kube-apiserver", ["127.0.0.1", "kubernetes.default.svc", "*.example.com"]
    )
    return TlsServer(tmp_path, authority, credential)


def credentials(
    authority: bytes = b"", client: Credential | None = None, *, insecure: bool = False, server_name: str = ""
) -> Credentials:
    user = User(DataOrFile(client.certificate), DataOrFile(client.key)) if client else User()
    return Credentials(Cluster("", server_name, insecure, DataOrFile(authority)), user)


def greet(
    tls: UpstreamTls,
    server: TlsServer,
    name: str = "127.0.0.1",
    *,
    lend: bool = True,
    alpn: list[bytes] = HTTP1,
) -> SSL.Connection:
    """Complete the hub's side of a handshake; OpenSSL.SSL.Error when either side refuses."""
    ours = tls.connection(name, present_certificate=lend, alpn=alpn)
    shown = meet(ours, server.context).getpeercert(binary_form=True)
    server.shown.append(common_name(shown))
    return ours


@pytest.mark.parametrize("name", ["127.0.0.1", "kubernetes.default.svc", "a.example.com"])
def test_a_server_certificate_by_the_clusters_ca_is_trusted_for_each_name(
    server: TlsServer, authority: Authority, name: str
) -> None:
    greet(UpstreamTls(credentials(authority.certificate)), server, name)
    assert server.names == [None if name == "127.0.0.1" else name], "an address is no server name indication"


@pytest.mark.parametrize("name", ["127.0.0.2", "::1", "other.svc", "a.b.example.com", "kubernetes"])
def test_a_server_without_a_certificate_for_its_name_is_refused(
    server: TlsServer, authority: Authority, name: str
) -> None:
    with pytest.raises(SSL.Error):
        greet(UpstreamTls(credentials(authority.certificate)), server, name)
    assert server.shown == [], "it never saw our certificate"


@pytest.mark.parametrize(
    ("hosts", "name", "is_its"),
    [
        (["a.example.com"], "A.Example.COM", True),
        (["A.example.com"], "a.example.com.", True),
        (["a.example.com"], "b.example.com", False),
        (["*.example.com"], "a.example.com", True),
        (["*.example.com"], "example.com", False),
        (["*.example.com"], "a.b.example.com", False),
        (["a*.example.com"], "ab.example.com", False),
        (["*.com"], "example.com", False),
        (["xn--bcher-kva.example"], "b\u00fccher.example", True),
        (["10.0.0.1"], "10.0.0.1", True),
        (["10.0.0.1"], "10.0.0.2", False),
        (["fd00::1"], "fd00:0::1", True),
        ([], "common-name", False),
    ],
)
def test_a_certificate_is_valid_only_for_its_subject_alternative_names(
    authority: Authority, hosts: list[str], name: str, is_its: bool
) -> None:
    shown = x509.load_pem_x509_certificate(authority.issue_server("common-name", hosts).certificate)
    assert is_named(shown, name) is is_its


@pytest.mark.parametrize("name", ["", "*.example.com", "a\0.example.com", "a" * 64 + ".example.com"])
def test_an_invalid_server_name_is_an_error(authority: Authority, name: str) -> None:
    with pytest.raises(ValueError, match=r"name|label"):
        UpstreamTls(credentials(authority.certificate)).connection(
            name, present_certificate=False, alpn=HTTP1
        )


def test_a_refused_certificate_is_reported_with_the_reason(server: TlsServer, authority: Authority) -> None:
    for trusted, name, expected in (
        (authority.certificate, "other.svc", "the certificate is not that of other.svc"),
        (Authority().certificate, "127.0.0.1", "self signed certificate in chain"),
        (b"", "127.0.0.1", "self signed certificate in chain"),
    ):
        ours = UpstreamTls(credentials(trusted)).connection(name, present_certificate=False, alpn=HTTP1)
        with pytest.raises(SSL.Error):
            meet(ours, server.context)
        assert refusal_of(ours) == f"Certificate verify failed: {expected}"


def test_an_unreadable_certificate_is_refused_with_openssls_error(
    server: TlsServer, authority: Authority
) -> None:
    """An exception in the callback would replace OpenSSL's error."""

    def read(_: x509.Certificate) -> bool:
        raise x509.DuplicateExtension("two of a kind", NameOID.COMMON_NAME)

    context = client_context([x509.load_pem_x509_certificate(authority.certificate)])
    ours = connection_to(Expected("a server", read), context, HTTP1)
    with pytest.raises(SSL.Error):
        meet(ours, server.context)
    assert refusal_of(ours) == "Certificate verify failed: the certificate cannot be read: two of a kind"


@pytest.mark.parametrize("trusted", [Authority().certificate, b""], ids=["another", "the machine's own"])
def test_a_server_of_another_ca_is_refused(server: TlsServer, trusted: bytes) -> None:
    with pytest.raises(SSL.Error):
        greet(UpstreamTls(credentials(trusted)), server)


def test_an_insecure_kubeconfig_trusts_any_server(server: TlsServer) -> None:
    greet(UpstreamTls(credentials(Authority().certificate, insecure=True)), server, "other.svc")
    assert server.names == ["other.svc"]


def test_both_of_two_cas_are_trusted(server: TlsServer, authority: Authority) -> None:
    """A cluster that rotates its CA needs both for some time."""
    bundle = Authority().certificate + authority.certificate
    greet(UpstreamTls(credentials(bundle)), server)
    # The handshake completed: the server has recorded a client without a certificate.
    assert server.shown == [""]


def test_the_certificate_is_presented_only_on_connections_with_the_hubs_identity(
    server: TlsServer, authority: Authority
) -> None:
    tls = UpstreamTls(credentials(authority.certificate, authority.issue_node("n1")))
    greet(tls, server, lend=True)
    greet(tls, server, lend=False)
    greet(tls, server, lend=True)
    assert server.shown == ["system:node:n1", "", "system:node:n1"]


@pytest.mark.parametrize(("offers", "chosen"), [(HTTP1, b"http/1.1"), (BOTH, b"h2")])
def test_only_the_offered_http_versions_are_negotiated(
    server: TlsServer, authority: Authority, offers: list[bytes], chosen: bytes
) -> None:
    found = greet(UpstreamTls(credentials(authority.certificate)), server, alpn=offers)
    assert found.get_alpn_proto_negotiated() == chosen


def test_a_silent_connection_keeps_no_buffers(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyOpenSSL gives no way to read the mode of a context that is in use."""
    modes: list[int] = []
    monkeypatch.setattr(SSL.Context, "set_mode", lambda _context, mode: modes.append(mode))
    UpstreamTls(credentials(authority.certificate)).connection(
        "127.0.0.1", present_certificate=False, alpn=BOTH
    )
    assert SSL.MODE_RELEASE_BUFFERS in modes


def test_old_tls_versions_are_refused(server: TlsServer, authority: Authority) -> None:
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        server.context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        server.context.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.raises(SSL.Error):
        greet(UpstreamTls(credentials(authority.certificate)), server)


def test_rotated_files_are_used_by_the_next_connection(
    tmp_path: Path, server: TlsServer, authority: Authority
) -> None:
    folder = tmp_path / "rotated"
    folder.mkdir()
    certificate, key = authority.issue_node("before").write(folder, "client")
    ca = folder / "ca.crt"
    ca.write_bytes(authority.certificate)
    tls = UpstreamTls(
        Credentials(
            Cluster(authority=DataOrFile(path=ca)), User(DataOrFile(path=certificate), DataOrFile(path=key))
        )
    )
    greet(tls, server)
    renewed = authority.issue_node("after").write(tmp_path, "renewed")
    renewed[0].replace(certificate)
    renewed[1].replace(key)
    greet(tls, server)
    greet(tls, server)
    assert server.shown == ["system:node:before", "system:node:after", "system:node:after"]
    other = folder / "ca.new"
    other.write_bytes(Authority().certificate)
    other.replace(ca)
    with pytest.raises(SSL.Error):
        greet(tls, server)


def from_files(authority: Authority, certificate: Path, key: Path) -> UpstreamTls:
    files = DataOrFile(path=certificate), DataOrFile(path=key)
    return UpstreamTls(Credentials(Cluster(authority=DataOrFile(authority.certificate)), User(*files)))


def test_a_changed_symbolic_link_to_a_certificate_file_is_followed(
    tmp_path: Path, server: TlsServer, authority: Authority
) -> None:
    """kubelet rotates this way: it writes a new file with certificate and key, then points `kubelet-client-current.pem`
    at it."""
    current = tmp_path / "kubelet-client-current.pem"
    tls = from_files(authority, current, current)
    partitions = set()
    for name in ("before", "after"):
        pair = authority.issue_node(name)
        (tmp_path / f"{name}.pem").write_bytes(pair.certificate + pair.key)
        (tmp_path / "new").symlink_to(tmp_path / f"{name}.pem")
        (tmp_path / "new").replace(current)
        partitions.add(tls.partition)
        greet(tls, server)
    assert server.shown == ["system:node:before", "system:node:after"]
    assert len(partitions) == 2


def test_a_half_written_certificate_and_key_leave_the_former_pair_in_use(
    tmp_path: Path, server: TlsServer, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    certificate, key = authority.issue_node("before").write(tmp_path, "client")
    tls = from_files(authority, certificate, key)
    former, ends = tls.partition, tls.expiry()
    renewed = authority.issue_node("after", timedelta(hours=1))
    for torn in (renewed.certificate[:100], renewed.certificate):
        certificate.write_bytes(torn)
        assert (tls.partition, tls.expiry()) == (former, ends)
        greet(tls, server)
        greet(tls, server)
    assert caplog.text.count("the previous ones stay in use") == 2, "once for each state of the files"
    key.write_bytes(renewed.key)
    greet(tls, server)
    assert server.shown == ["system:node:before"] * 4 + ["system:node:after"]
    assert tls.partition != former
    assert tls.expiry() != ends


def test_without_a_certificate_there_is_no_expiry_and_one_pool_partition() -> None:
    tls = UpstreamTls(NO_CREDENTIALS)
    assert (tls.partition, tls.expiry()) == ("", None)
    absent = DataOrFile(path=Path("/no/such/file"))
    missing = UpstreamTls(Credentials(Cluster(authority=absent), User(absent, absent, absent)))
    assert (missing.partition, missing.expiry()) == ("", None)


def test_a_missing_file_is_reported_with_its_field_and_used_once_it_exists(
    authority: Authority, tmp_path: Path
) -> None:
    cluster = {"server": "https://a", "certificate-authority": "ca.crt"}
    context = {"name": "c", "context": {"cluster": "c"}}
    document = {
        "clusters": [{"name": "c", "cluster": cluster}],
        "contexts": [context],
        "current-context": "c",
    }
    tls = UpstreamTls(parse_kubeconfig(document, tmp_path))
    with pytest.raises(ValueError, match="certificate-authority of the kubeconfig: No such file"):
        tls.check()
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    tls.check()


def test_tls_contexts_are_reused_while_the_files_are_unchanged(authority: Authority) -> None:
    tls = UpstreamTls(credentials(authority.certificate, authority.issue_node("n1")))
    lent = [
        tls.connection("kubernetes", present_certificate=True, alpn=HTTP1).get_context() for _ in range(2)
    ]
    own = tls.connection("kubernetes", present_certificate=False, alpn=HTTP1).get_context()
    assert lent[0] is lent[1]
    assert own is not lent[0]


@pytest.mark.parametrize(
    "broken",
    [
        credentials(b"-----BEGIN CERTIFICATE-----\ngarbage\n-----END CERTIFICATE-----\n"),
        Credentials(user=User(DataOrFile(b"garbage"), DataOrFile(b"garbage"))),
        Credentials(user=User(DataOrFile(Authority().issue_node("n").certificate))),
    ],
)
def test_unusable_credentials_raise_an_error_before_connecting(broken: Credentials) -> None:
    with pytest.raises((ValueError, SSL.Error)):
        UpstreamTls(broken).connection("kubernetes", present_certificate=True, alpn=HTTP1)


def test_a_key_of_another_certificate_is_an_error(authority: Authority) -> None:
    one, other = authority.issue_node("one"), authority.issue_node("other")
    mixed = credentials(authority.certificate, Credential(one.certificate, other.key))
    with pytest.raises(SSL.Error):
        UpstreamTls(mixed).connection("kubernetes", present_certificate=True, alpn=HTTP1)


def test_the_kubeconfigs_tls_server_name_is_used() -> None:
    assert UpstreamTls(credentials(server_name="api.internal")).server_name == "api.internal"
    assert UpstreamTls(NO_CREDENTIALS).server_name == ""


@pytest.mark.parametrize("pem", [b"garbage", b"\xff"])
def test_malformed_certificates_are_configuration_errors(pem: bytes) -> None:
    bad = DataOrFile(pem)
    for broken in (Credentials(Cluster(authority=bad)), Credentials(user=User(bad))):
        with pytest.raises(ValueError, match="cannot be used"):
            UpstreamTls(broken).check()
