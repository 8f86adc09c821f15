"""The choice of a proxy for a server, and the request to it."""

from __future__ import annotations

import pytest

from kube.http.proxies import Proxy, parse_proxy, proxy_for

PROXY = Proxy("http", "proxy.corp", 3128)


@pytest.mark.parametrize(
    ("url", "proxy"),
    [
        ("http://proxy.corp:3128", PROXY),
        ("proxy.corp:3128", PROXY),
        ("http://proxy.corp", Proxy("http", "proxy.corp", 80)),
        ("https://proxy.corp/", Proxy("https", "proxy.corp", 443)),
        ("http://[fd00::1]:8080", Proxy("http", "fd00::1", 8080)),
        (
            "http://us%40er:p%3Ass@proxy.corp:3128",
            Proxy("http", "proxy.corp", 3128, "Basic dXNAZXI6cDpzcw=="),
        ),
    ],
)
def test_a_proxy_url_is_parsed(url: str, proxy: Proxy) -> None:
    assert parse_proxy(url) == proxy


@pytest.mark.parametrize(
    "url", ["socks5://u:secret@proxy", "http://u:secret@", "http://u:secret@proxy:x", "http://u:secret@p/x"]
)
def test_an_invalid_proxy_url_is_refused_without_printing_its_password(url: str) -> None:
    with pytest.raises(ValueError, match="the URL of the proxy") as refused:
        parse_proxy(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("host", "no_proxy", "is_proxied"),
    [
        ("cloud.example", "", True),
        ("127.0.0.1", "", False),
        ("::1", "", False),
        ("localhost", "", False),
        ("cloud.example", "*", False),
        ("cloud.example", "other.example, Example", False),
        ("cloud.example", ".example", False),
        ("example", ".example", True),
        ("badexample", "example", True),
        ("cloud.example", "*.example", False),
        ("cloud.example", "cloud.example:6443", False),
        ("cloud.example", "cloud.example:443", True),
        ("10.1.2.3", "10.0.0.0/8", False),
        ("10.1.2.3", "10.1.2.3", False),
        ("11.1.2.3", "10.0.0.0/8,1.2.3", True),
        ("fd00::5", "fd00::/8", False),
        ("fd00::5", "[fd00::5]:6443", False),
        ("fd00::5", "[fd00::5]:443", True),
    ],
)
def test_hosts_in_no_proxy_are_not_proxied(host: str, no_proxy: str, is_proxied: bool) -> None:
    environment = {"HTTPS_PROXY": "http://proxy.corp:3128", "no_proxy": no_proxy}
    assert (proxy_for("https", host, 6443, None, environment) == PROXY) is is_proxied


def test_the_scheme_selects_the_environment_variable() -> None:
    environment = {"https_proxy": "http://proxy.corp:3128"}
    assert proxy_for("http", "cloud.example", 80, None, environment) is None
    assert proxy_for("http", "cloud.example", 80, None, {"HTTP_PROXY": "proxy.corp:3128"}) == PROXY


def test_the_proxy_of_a_kubeconfig_overrides_the_environment() -> None:
    environment = {"HTTPS_PROXY": "http://other:1", "NO_PROXY": "*"}
    assert proxy_for("https", "127.0.0.1", 6443, PROXY, environment) == PROXY


@pytest.mark.parametrize(
    ("proxy", "host", "sent"),
    [
        (PROXY, "cloud", b"CONNECT cloud:6443 HTTP/1.1\r\nHost: cloud:6443\r\n\r\n"),
        (PROXY, "fd00::5", b"CONNECT [fd00::5]:6443 HTTP/1.1\r\nHost: [fd00::5]:6443\r\n\r\n"),
        (
            Proxy("http", "p", 1, "Basic eDp5"),
            "cloud",
            b"CONNECT cloud:6443 HTTP/1.1\r\nHost: cloud:6443\r\nProxy-Authorization: Basic eDp5\r\n\r\n",
        ),
    ],
)
def test_a_connect_request_is_sent_to_the_proxy(proxy: Proxy, host: str, sent: bytes) -> None:
    assert proxy.request(host, 6443) == sent
    assert proxy.authorization not in repr(proxy) or not proxy.authorization


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\nX: y", "refuses: 407 Proxy Authentication Required"),
        (b"HTTP/1.1 502", "refuses: 502"),
        (b"SSH-2.0-OpenSSH", "does not speak HTTP"),
        (b"HTTP/1.1 abc", "does not speak HTTP"),
        (b"", "does not speak HTTP"),
    ],
)
def test_a_refusing_proxy_is_named_in_the_error(head: bytes, message: str) -> None:
    PROXY.opened(b"HTTP/1.0 200 Connection established")
    with pytest.raises(ConnectionError, match=rf"the proxy http://proxy\.corp:3128 {message}"):
        PROXY.opened(head)
