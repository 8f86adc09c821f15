"""The webhook's certificates: when the manager renews them, and which ones clients trust meanwhile."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from controllers.bindings.webhook_certificate import (
    AUTHORITY,
    AUTHORITY_DAYS,
    AUTHORITY_KEY,
    CERTIFICATE,
    KEY,
    SERVING_DAYS,
    renewed,
)

NOW = datetime(2026, 11, 22, tzinfo=UTC)
HOST = "edgehub-manager.kube-system.svc"
HOSTS = frozenset({HOST})


def trusts(bundle: bytes, certificate: bytes, now: datetime, host: str = HOST) -> bool:
    """Return True if a client that trusts a bundle accepts a certificate for a host."""
    verifier = (
        PolicyBuilder()
        .store(Store(x509.load_pem_x509_certificates(bundle)))
        .time(now)
        .build_server_verifier(x509.DNSName(host))
    )
    try:
        verifier.verify(x509.load_pem_x509_certificate(certificate), [])
    except VerificationError:
        return False
    return True


def test_the_first_certificate_is_trusted_for_its_hosts() -> None:
    data = renewed({}, HOSTS, NOW)
    assert set(data) == {CERTIFICATE, KEY, AUTHORITY, AUTHORITY_KEY}
    assert trusts(data[AUTHORITY], data[CERTIFICATE], NOW)
    assert not trusts(data[AUTHORITY], data[CERTIFICATE], NOW, "elsewhere")


def test_a_valid_certificate_is_retained() -> None:
    data = renewed({}, HOSTS, NOW)
    assert renewed(data, HOSTS, NOW + timedelta(days=SERVING_DAYS * 0.6)) == data


def test_a_certificate_is_renewed_at_two_thirds_of_its_lifetime() -> None:
    data = renewed({}, HOSTS, NOW)
    later = NOW + timedelta(days=SERVING_DAYS * 0.7)
    new = renewed(data, HOSTS, later)
    assert new[CERTIFICATE] != data[CERTIFICATE]
    assert (new[AUTHORITY], new[AUTHORITY_KEY]) == (data[AUTHORITY], data[AUTHORITY_KEY])
    assert trusts(data[AUTHORITY], new[CERTIFICATE], later)


def test_both_cas_are_trusted_after_a_change_of_the_ca() -> None:
    later = NOW + timedelta(days=AUTHORITY_DAYS * 0.7)
    data = renewed(renewed({}, HOSTS, NOW), HOSTS, later - timedelta(days=20))
    new = renewed(data, HOSTS, later)
    assert len(x509.load_pem_x509_certificates(new[AUTHORITY])) == 2
    # A replica that has not read the new Secret yet serves the old certificate.
    assert trusts(new[AUTHORITY], data[CERTIFICATE], later)
    assert trusts(new[AUTHORITY], new[CERTIFICATE], later)
    assert not trusts(data[AUTHORITY], new[CERTIFICATE], later)


def test_changed_hosts_renew_the_certificate_under_the_same_authority() -> None:
    data = renewed({}, HOSTS, NOW)
    new = renewed(data, frozenset({HOST, "127.0.0.1"}), NOW)
    names = x509.load_pem_x509_certificate(new[CERTIFICATE]).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert [str(each) for each in names.value.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    assert new[AUTHORITY] == data[AUTHORITY]


@pytest.mark.parametrize("key", [CERTIFICATE, KEY, AUTHORITY, AUTHORITY_KEY])
@pytest.mark.parametrize(
    "value", [b"", b"garbage", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_a_damaged_certificate_is_renewed(key: str, value: bytes) -> None:
    new = renewed({**renewed({}, HOSTS, NOW), key: value}, HOSTS, NOW)
    assert trusts(new[AUTHORITY], new[CERTIFICATE], NOW)
    assert renewed(new, HOSTS, NOW) == new


def test_a_key_that_does_not_match_is_replaced() -> None:
    data, other = renewed({}, HOSTS, NOW), renewed({}, HOSTS, NOW)
    new = renewed({**data, KEY: other[KEY]}, HOSTS, NOW)
    assert new[KEY] not in (data[KEY], other[KEY])
