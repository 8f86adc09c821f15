"""The endpoints in recorded iptables rules."""

from __future__ import annotations

from collections.abc import Mapping, Set

import pytest

from tests.cloud.kube_proxy import parse_endpoints

FIRST = """\
*filter
:KUBE-SERVICES - [0:0]
-A KUBE-SERVICES -m comment --comment "a/dns:tcp has no endpoints" -d 10.96.0.3 -j REJECT
COMMIT
*nat
:KUBE-SERVICES - [0:0]
:KUBE-SVC-WEB - [0:0]
:KUBE-SVC-API - [0:0]
-A KUBE-SERVICES -m comment --comment "a/web cluster IP" -m tcp -p tcp -d 10.96.0.1 --dport 80 -j KUBE-SVC-WEB
-A KUBE-SVC-WEB -m comment --comment "a/web -> 10.1.0.1:8080" -m statistic --mode random -j KUBE-SEP-1
-A KUBE-SVC-WEB -m comment --comment "a/web -> 10.1.0.2:8080" -j KUBE-SEP-2
-A KUBE-SERVICES -m comment --comment "a/api:http cluster IP" -m tcp -p tcp -d 10.96.0.2 -j KUBE-SVC-API
-A KUBE-SVC-API -m comment --comment "a/api:http -> 10.1.0.3:80" -j KUBE-SEP-3
COMMIT
"""
CHANGED = """\
*nat
:KUBE-SERVICES - [0:0]
:KUBE-SVC-WEB - [0:0]
-A KUBE-SERVICES -m comment --comment "a/web cluster IP" -m tcp -p tcp -d 10.96.0.1 --dport 80 -j KUBE-SVC-WEB
-A KUBE-SVC-WEB -m comment --comment "a/web -> 10.1.0.2:8080" -j KUBE-SEP-2
-A KUBE-SERVICES -m comment --comment "a/api:http cluster IP" -m tcp -p tcp -d 10.96.0.2 -j KUBE-SVC-API
COMMIT
"""
REMOVED = "*nat\n:KUBE-SERVICES - [0:0]\nCOMMIT\n"


@pytest.mark.parametrize(
    ("text", "endpoints"),
    [
        ("", {}),
        (FIRST, {"a/web": {"10.1.0.1:8080", "10.1.0.2:8080"}, "a/api:http": {"10.1.0.3:80"}}),
        # A chain that is not named again is unchanged.
        (FIRST + CHANGED, {"a/web": {"10.1.0.2:8080"}, "a/api:http": {"10.1.0.3:80"}}),
        # An incomplete write is ignored.
        (FIRST + REMOVED.removesuffix("COMMIT\n"), parse_endpoints(FIRST.splitlines())),
        # A chain without a jump to it is ignored.
        (FIRST + REMOVED, {}),
    ],
)
def test_endpoints_are_parsed_from_iptables_rules(text: str, endpoints: Mapping[str, Set[str]]) -> None:
    assert parse_endpoints(text.splitlines()) == endpoints
