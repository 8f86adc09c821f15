"""TLS with this node's kubelet: the hub verifies the node's name, and presents its own certificate."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from OpenSSL import SSL

from addons.link.health import Cloud
from addons.link.identities.kubelet import KUBELET, KubeletAccess, kubelet_at
from addons.link.link import UpstreamManager
from addons.requests.caller import CredentialSource
from kube.http.kubeconfig import NO_CREDENTIALS
from tests.addons.support.tls_peers import meet
from tests.cloud.pki import Authority, Credential

OFFERS = [b"http/1.1"]


def shown_to_kubelet(
    folder: Path, serving: Credential, trusted: bytes, client: Credential
) -> tuple[KubeletAccess, bytes | None]:
    """Return the certificate that kubelet sees in a successful handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*serving.write(folder, "serving"))
    context.load_verify_locations(cadata=trusted.decode())
    context.verify_mode = ssl.CERT_OPTIONAL
    authority = folder / "authority.crt"
    authority.write_bytes(trusted)
    access = KubeletAccess("n1", *client.write(folder, "client"), authority)
    return access, meet(access.tls(OFFERS), context).getpeercert(binary_form=True)


def test_kubelet_of_this_node_sees_the_certificate_of_the_hub(tmp_path: Path) -> None:
    authority = Authority()
    client = authority.issue_client("for-kubelet", ["nurses"])
    access, shown = shown_to_kubelet(
        tmp_path, authority.issue_server("any", ["n1"]), authority.certificate, client
    )
    assert shown == ssl.PEM_cert_to_DER_cert(client.certificate.decode())
    assert access.user() == ("for-kubelet", ["nurses", "system:authenticated"])


@pytest.mark.parametrize("is_known", [True, False])
def test_no_request_is_sent_to_a_server_with_another_name_or_ca(tmp_path: Path, is_known: bool) -> None:
    authority, other = Authority(), Authority("another")
    serving = (authority if is_known else other).issue_server("any", ["n2" if is_known else "n1"])
    with pytest.raises(SSL.Error):
        shown_to_kubelet(tmp_path, serving, authority.certificate, authority.issue_client("for-kubelet"))


def test_the_link_has_no_kubelet_client_without_a_certificate() -> None:
    link = UpstreamManager(Cloud([], "priority"), NO_CREDENTIALS)
    assert not kubelet_at(7).is_in_cloud
    assert kubelet_at(7).node == KUBELET
    with pytest.raises(RuntimeError, match="no certificate for kubelet"):
        link.tls(
            kubelet_at(7), link.pool_key(kubelet_at(7), CredentialSource.HUB, "").credential_source, OFFERS
        )
