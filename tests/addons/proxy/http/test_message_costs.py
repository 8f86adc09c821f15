"""The faster headers, options and messages behave as mitmproxy's, and mitmproxy's own are still slow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from mitmproxy import http, optmanager
from mitmproxy.coretypes.multidict import MultiDict
from mitmproxy.options import Options

from addons.proxy.http.message_costs import PATCHES
from addons.proxy.patches import install

FIELDS = ((b"Accept", b"a"), (b"X-Name", b"\xc3\xa4\xff"), (b"accept", b"b"), (b"Empty", b""))


@pytest.fixture
def patched(restored: None) -> None:
    install(PATCHES)


@pytest.mark.usefixtures("patched")
@pytest.mark.parametrize("name", ["Accept", "accept", b"ACCEPT", "x-name", "empty", "none", b"none", "ä"])
def test_a_header_is_read_as_mitmproxy_reads_it(name: str) -> None:
    headers, own = http.Headers(FIELDS), list(mitmproxys(FIELDS, name))
    assert headers.get_all(name) == own
    assert (name in headers) is bool(own)
    assert headers.get(name) == (", ".join(own) if own else None)
    assert headers.get(name, "other") == (", ".join(own) if own else "other")
    if own:
        assert headers[name] == ", ".join(own)
    else:
        with pytest.raises(KeyError):
            headers[name]


def mitmproxys(fields: tuple[tuple[bytes, bytes], ...], name: str | bytes) -> Iterator[str]:
    """What mitmproxy's own code says, which the class below `Headers` has."""
    raw = name.encode() if isinstance(name, str) else name
    for value in MultiDict.get_all(http.Headers(fields), raw):
        yield value.decode("utf-8", "surrogateescape")


@pytest.mark.usefixtures("patched")
def test_headers_can_be_changed() -> None:
    headers = http.Headers(FIELDS)
    headers["accept"] = "c"
    del headers["empty"]
    headers.add("new", "1")
    assert (headers["Accept"], "empty" in headers, headers.get("New")) == ("c", False, "1")
    assert headers.pop("new") == "1"
    assert headers.pop("new", "gone") == "gone"
    with pytest.raises(KeyError):
        del headers["new"]


@pytest.mark.usefixtures("patched")
def test_who_changes_an_options_value_changes_no_option() -> None:
    options = Options()
    options.add_option("words", Sequence[str], ["a"], "")
    options.words.append("b")
    assert options.words == ["a"]
    options.update(words=["c"], listen_port=3)
    options.words.append("d")
    assert (options.words, options.listen_port, options.listen_host) == (["c"], 3, "")


@pytest.mark.usefixtures("patched")
def test_messages_are_made_as_before() -> None:
    response = http.Response.make(200, b"body", {"Content-Type": "text/plain"})
    assert (response.content, response.headers["content-type"]) == (b"body", "text/plain")


class Counting(http.Headers):
    """Counts the calls for the fields of a read."""

    calls = 0

    @staticmethod
    def _kconv(key: bytes) -> bytes:  # type: ignore[override]  # mitmproxy's class is generic
        Counting.calls += 1
        return key.lower()


def test_mitmproxy_itself_calls_a_function_for_each_field(monkeypatch: pytest.MonkeyPatch) -> None:
    headers = Counting(FIELDS)
    monkeypatch.setattr(Counting, "calls", 0)
    assert headers.get("accept") == "a, b"
    assert Counting.calls > len(FIELDS)


class Copied:
    """Counts its copies."""

    copies = 0

    def __deepcopy__(self, _: object) -> Copied:
        self.copies += 1
        return self


def test_mitmproxy_itself_copies_an_option_twice() -> None:
    value = Copied()
    assert optmanager._Option("name", object, value, "", None).current() is value
    assert value.copies == 2


def test_mitmproxy_itself_checks_the_fields_of_each_message() -> None:
    version: Any = "not bytes"
    with pytest.raises(TypeError, match="http_version"):
        http.ResponseData(version, http.Headers(), None, None, 0.0, None, 200, b"OK")
