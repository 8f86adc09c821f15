"""The TLS port shows the cluster's certificate to clients that call a name in it, and the local CA's to others."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest

from addons.certificates.asked_certificate import AskedCertificate
from addons.certificates.serving_certificate import Pair, own_certificate, read_pair
from addons.certificates.tls_port_certificate import TlsPortCertificate
from tests.cloud.pki import Authority

AUTHORITY = Authority()


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
    assert abs(later - ends) > timedelta(hours=1)
    assert TlsPortCertificate(local).expiry() == later
