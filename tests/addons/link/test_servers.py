"""The server URLs that an operator configures: host, port, and path prefix."""

from __future__ import annotations

import pytest

from addons.link.servers import parse_relays, parse_server


@pytest.mark.parametrize(
    ("text", "authority", "prefix"),
    [
        ("https://cloud", "cloud:443", ""),
        ("https://cloud:6443/", "cloud:6443", ""),
        ("https://gateway/k8s/clusters/c-m-1", "gateway:443", "/k8s/clusters/c-m-1"),
        ("https://gateway/k8s/clusters/c-m-1/", "gateway:443", "/k8s/clusters/c-m-1"),
        ("http://[::1]:8080/v1%20x", "[::1]:8080", "/v1%20x"),
    ],
)
def test_a_server_may_have_a_path(text: str, authority: str, prefix: str) -> None:
    """Rancher and other gateways to several clusters have a path; client-go prefixes every request path with it."""
    server = parse_server(text)
    assert (server.authority, server.prefix) == (authority, prefix)


@pytest.mark.parametrize(
    "text",
    ["cloud", "ftp://cloud", "https://cloud/a?b", "https://cloud/#a", "https://u@cloud", "https://cloud/a b"],
)
def test_a_url_with_credentials_a_query_or_no_host_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="server"):
        parse_server(text)


def test_two_clusters_of_one_gateway_are_two_servers() -> None:
    assert parse_server("https://gateway/a") != parse_server("https://gateway/b")


def test_a_relay_url_with_a_path_is_refused() -> None:
    with pytest.raises(ValueError, match="relay"):
        parse_relays("https://relay:10269/a")
