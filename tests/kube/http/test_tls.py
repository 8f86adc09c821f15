"""The TLS settings of a kubeconfig: the servers that they trust, and the certificate that they show."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from kube.http.kubeconfig import NO_CREDENTIALS, Credentials, Piece, load_kubeconfig
from kube.http.tls import tls_context
from tests.cloud.kubeconfig import write_kubeconfig
from tests.cloud.pki import Authority


def test_a_kubeconfig_s_certificates_are_used(tmp_path: Path) -> None:
    authority = Authority()
    path = write_kubeconfig(
        tmp_path / "config",
        "https://127.0.0.1:1",
        authority=authority.certificate,
        credential=authority.issue_admin(),
    )
    context = tls_context(load_kubeconfig(path))
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT
    assert len(context.get_ca_certs()) == 1


@pytest.mark.parametrize("pem", [b"garbage", b"\xff"])
def test_bad_certificates_are_the_operator_s_error(pem: bytes) -> None:
    for field in ("authority", "certificate"):
        credentials = Credentials(
            **{
                **{name: getattr(NO_CREDENTIALS, name) for name in Credentials.__slots__},
                field: Piece(pem),
            }
        )
        with pytest.raises(ValueError, match="cannot be used"):
            tls_context(credentials)
