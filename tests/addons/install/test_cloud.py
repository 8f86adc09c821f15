"""Requests to the cloud and the hub, and the CA that a cluster publishes."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import ssl
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from addons.install.cloud import authority_of, check_signature, check_token, cloud, get, hash_of, local, may
from kube.errors import StatusError
from kube.http.client import Unreachable
from kube.http.kubeconfig import Cluster, Credentials, DataOrFile, User
from tests.addons.support.small_api import small_api
from tests.cloud.pki import Authority
from tests.support.server_thread import Answering, HttpServer


async def test_objects_and_permissions_are_requested() -> None:
    async with small_api({"/api/v1/nodes/n1": {"kind": "Node"}}, refused=frozenset({"pods"})) as url:
        credentials = Credentials(Cluster(url), User(token=DataOrFile(b"secret")))
        async with cloud(credentials) as client:
            assert await get(client, "/api/v1/nodes/n1") == {"kind": "Node"}
            assert await may(client, {"resource": "services", "verb": "list"})
            assert not await may(client, {"resource": "pods", "verb": "list"})
            with pytest.raises(StatusError, match="not found"):
                await get(client, "/nowhere")


async def test_a_port_without_a_listener_is_unreachable() -> None:
    async with local("http://127.0.0.1:1") as client:
        with pytest.raises(Unreachable):
            await get(client, "/")


AUTHORITY, OTHER = Authority(), Authority()
HASH, OTHER_HASH = (hash_of(x509.load_pem_x509_certificate(each.certificate)) for each in (AUTHORITY, OTHER))
TOKEN, OTHER_TOKEN = "abcdef.0123456789abcdef", "abcdef.0123456789abcdee"


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def signed(text: str, token: str, **header: str) -> str:
    """Return a detached JWS of a text for a token; its header may be another one."""
    name, _, secret = token.partition(".")
    first = b64(json.dumps({"alg": "HS256", "kid": name, **header}).encode())
    digest = hmac.digest(secret.encode(), f"{first}.{b64(text.encode())}".encode(), hashlib.sha256)
    return f"{first}..{b64(digest)}"


class Server(HttpServer):
    """Publish a CA, signed for a token, at a port with a certificate of a given CA; record the requests."""

    def __init__(
        self, folder: Path, published: bytes, signer: Authority, status: int = 200, token: str = TOKEN
    ) -> None:
        self.credentials: list[str | None] = []
        server = self
        cluster = {
            "name": "",
            "cluster": {"certificate-authority-data": base64.b64encode(published).decode()},
        }
        text = yaml.safe_dump({"clusters": [cluster]})
        signature = {f"jws-kubeconfig-{token[:6]}": signed(text, token)} if token else {}
        body = json.dumps({"data": {"kubeconfig": text, **signature}}).encode()

        class Handler(Answering):
            def respond(self) -> None:
                server.credentials.append(self.headers["Authorization"])
                self.answer(body, status)

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*signer.issue_server("c", ["127.0.0.1"]).write(folder, "server"))
        super().__init__(Handler, context)


async def test_the_ca_with_this_hash_is_accepted(tmp_path: Path) -> None:
    server = Server(tmp_path, OTHER.certificate + AUTHORITY.certificate, AUTHORITY)
    with server:
        assert (
            await authority_of(server.url, [HASH.upper().replace("SHA", "sha")], TOKEN)
            == AUTHORITY.certificate
        )
    assert server.credentials == [None, None], "a stranger is sent no token"


@pytest.mark.parametrize(
    ("published", "signer", "hashes", "status", "message"),
    [
        (OTHER.certificate, OTHER, [HASH], 200, f"of another hash, {OTHER_HASH}"),
        (AUTHORITY.certificate, OTHER, [HASH], 200, "ertificate"),
        (AUTHORITY.certificate, AUTHORITY, ["sha256:12"], 200, "64 hexadecimal digits"),
        (AUTHORITY.certificate, AUTHORITY, [HASH], 403, "does not publish its CA"),
        (b"nonsense", AUTHORITY, [HASH], 200, "cannot be read"),
    ],
    ids=["another CA", "a server that only copied the CA", "no hash", "not published", "no certificate"],
)
async def test_a_ca_that_does_not_match_the_hash_or_signature_is_refused(
    tmp_path: Path, published: bytes, signer: Authority, hashes: list[str], status: int, message: str
) -> None:
    server = Server(tmp_path, published, signer, status)
    with server, pytest.raises(ValueError, match=message):
        await authority_of(server.url, hashes, TOKEN)
    assert server.credentials in ([], [None], [None, None])


@pytest.mark.parametrize(
    ("token", "message"),
    [
        ("", "has not signed its CA for this token"),
        ("zzzzzz.0123456789abcdef", "has not signed its CA for this token"),
        (OTHER_TOKEN, "it signs another text, or uses another token; nothing was sent"),
    ],
    ids=["no signature", "another token's signature alone", "another secret"],
)
async def test_a_ca_that_is_not_signed_for_the_token_is_refused(
    tmp_path: Path, token: str, message: str
) -> None:
    server = Server(tmp_path, AUTHORITY.certificate, AUTHORITY, token=token)
    with server, pytest.raises(ValueError, match=message):
        await authority_of(server.url, [HASH], TOKEN)
    assert server.credentials == [None]


def test_a_signature_of_kubernetes_is_verified() -> None:
    # The text, signature and token come from Kubernetes' own test (k8s.io/cluster-bootstrap/token/jws).
    of_kubernetes = (
        "Hello from the other side. I must have called a thousand times.",
        "eyJhbGciOiJIUzI1NiIsImtpZCI6Impvc2h1YSJ9..VShe2taLd-YTrmWuRkcL_8QTNDHYxQIEBsAYYiIj1_8",
        "joshua.my voice is my passcode",
    )
    check_signature(*of_kubernetes)


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        (signed("another text", TOKEN), "signs another text"),
        (signed("a text", OTHER_TOKEN), "uses another token"),
        (signed("a text", TOKEN, alg="none"), "by 'none'"),
        (signed("a text", TOKEN, kid="zzzzzz"), "for the token 'zzzzzz'"),
        (signed("a text", TOKEN).rpartition(".")[0] + ".", "signs another text"),
        (signed("a text", TOKEN).replace("..", "."), "not of the form"),
        (f"{b64(b'[]')}..AAAA", "not of the form"),
        ("é..", "cannot be read"),
        ("nonsense", "cannot be read"),
        ("", "cannot be read"),
    ],
)
def test_a_wrong_signature_is_refused(signature: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_signature("a text", signature, TOKEN)


def test_a_malformed_token_is_refused() -> None:
    check_token("abcdef.0123456789abcdef")
    with pytest.raises(ValueError, match="of the form"):
        check_token("abcdef.0123")
