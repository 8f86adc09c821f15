"""The CA of a cluster that is not known yet: the hash decides, and the server must have a certificate of it."""

from __future__ import annotations

import base64
import json
import ssl
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from addons.install.discovery import authority_of, check_token, hash_of
from tests.cloud.pki import Authority
from tests.support.server_thread import Quiet, ServerThread

AUTHORITY, OTHER = Authority(), Authority()
HASH, OTHER_HASH = (hash_of(x509.load_pem_x509_certificate(each.certificate)) for each in (AUTHORITY, OTHER))


class Server(ServerThread):
    """Publishes a CA, and has a certificate of one; notes what it was sent."""

    def __init__(self, folder: Path, published: bytes, signer: Authority, status: int = 200) -> None:
        self.credentials: list[str | None] = []
        server = self
        cluster = {
            "name": "",
            "cluster": {"certificate-authority-data": base64.b64encode(published).decode()},
        }
        body = json.dumps({"data": {"kubeconfig": yaml.safe_dump({"clusters": [cluster]})}}).encode()

        class Handler(Quiet, BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.credentials.append(self.headers["Authorization"])
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*signer.issue_server("c", ["127.0.0.1"]).write(folder, "server"))
        http.socket = context.wrap_socket(http.socket, server_side=True)
        super().__init__(http)
        self.url = f"https://127.0.0.1:{http.server_address[1]}"


async def test_the_ca_of_this_hash_is_taken(tmp_path: Path) -> None:
    server = Server(tmp_path, OTHER.certificate + AUTHORITY.certificate, AUTHORITY)
    with server:
        assert await authority_of(server.url, [HASH.upper().replace("SHA", "sha")]) == AUTHORITY.certificate
    assert server.credentials == [None, None], "a stranger is sent no token"


@pytest.mark.parametrize(
    ("published", "signer", "hashes", "status", "words"),
    [
        (OTHER.certificate, OTHER, [HASH], 200, f"of another hash, {OTHER_HASH}"),
        (AUTHORITY.certificate, OTHER, [HASH], 200, "ertificate"),
        (AUTHORITY.certificate, AUTHORITY, ["sha256:12"], 200, "64 hexadecimal digits"),
        (AUTHORITY.certificate, AUTHORITY, [HASH], 403, "does not publish its CA"),
        (b"nonsense", AUTHORITY, [HASH], 200, "cannot be read"),
    ],
    ids=["another CA", "a server that only copied the CA", "no hash", "not published", "no certificate"],
)
async def test_nothing_else_is(
    tmp_path: Path, published: bytes, signer: Authority, hashes: list[str], status: int, words: str
) -> None:
    server = Server(tmp_path, published, signer, status)
    with server, pytest.raises(ValueError, match=words):
        await authority_of(server.url, hashes)


def test_what_is_no_token_is_refused() -> None:
    check_token("abcdef.0123456789abcdef")
    with pytest.raises(ValueError, match="of the form"):
        check_token("abcdef.0123")
