"""Names that other programs depend on: a changed one would separate hubs, manager and cluster."""

from __future__ import annotations

import pytest

from kube.peers import (
    LONGEST_NODE_NAME,
    NODE_PREFIX,
    NODES_GROUP,
    PEER_ANNOTATION,
    SERVING_SIGNER,
    is_link_local,
    is_node_name,
    may_be_certified,
    parse_leader_hub,
)


def test_names_equal_those_of_kubernetes_and_of_older_hubs() -> None:
    assert (NODE_PREFIX, NODES_GROUP) == ("system:node:", "system:nodes")
    assert PEER_ANNOTATION == "edgehub.io/peer"
    assert SERVING_SIGNER == "kubernetes.io/kubelet-serving"


@pytest.mark.parametrize("entry", ["a", "10.0.0.1", "/10.0.0.1", "a/", "a/leader.example", "a/10.0.0.1/x"])
def test_a_malformed_leader_is_a_value_error(entry: str) -> None:
    with pytest.raises(ValueError, match="NODE/ADDRESS"):
        parse_leader_hub(entry)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a", True),
        ("0", True),
        ("n-1.example.org", True),
        ("a" * LONGEST_NODE_NAME, True),
        ("a" * (LONGEST_NODE_NAME + 1), False),
        ("", False),
        ("N1", False),
        ("a_b", False),
        ("-a", False),
        ("a-", False),
        ("a..b", False),
        ("a.-b", False),
        (".a", False),
        ("a,b/6.6.6.6", False),
        ("a/b", False),
        ("a b", False),
        ("a\n", False),
        ("\u0663", False),
    ],
)
def test_a_node_name_is_a_dns_subdomain(name: str, expected: bool) -> None:
    assert is_node_name(name) is expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("169.254.2.1", True),
        ("fe80::1", False),
        ("169.254.169.254", False),
        ("10.0.0.1", False),
        ("fd00::9:1", False),
        ("n1.example", False),
    ],
)
def test_link_local_names_are_recognized(name: str, expected: bool) -> None:
    assert is_link_local(name) is expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("n1", True),
        ("10.0.0.1", True),
        ("fd00::9:1", True),
        ("169.254.2.1", True),
        ("n2", False),
        ("kubernetes.default.svc", False),
        ("fe80::1", False),
        ("169.254.169.254", False),
        ("127.0.0.1", False),
        ("::1", False),
        ("::ffff:10.0.0.1", False),
        ("0.0.0.0", False),  # noqa: S104 - nobody listens
        ("ff02::1", False),
    ],
)
def test_names_of_a_node_in_certificate_requests_are_selected(name: str, expected: bool) -> None:
    assert may_be_certified(name, "n1") is expected
