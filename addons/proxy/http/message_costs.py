"""Makes three things cheap that mitmproxy does many times for each request: header reads, option reads, type checks.

A relayed request reads thirty headers and eight options, and makes two messages of five fields each. mitmproxy calls a
function for each field of a header read, copies the value of an option twice, and compares the fields of each message
that it makes with their annotations. Together they took a seventh of a small request's time.
"""

from __future__ import annotations

import copy

from mitmproxy import http, optmanager

from addons.proxy.patches import MISSING, Patch

IMMUTABLE = (str, int, float, type(None))
"""The types of most options: a value of theirs needs no copy."""


def get_all(self: http.Headers, name: str | bytes) -> list[str]:
    """The values of a header, one for each line of it."""
    return [value.decode("utf-8", "surrogateescape") for value in _values(self, name)]


def get_item(self: http.Headers, key: str | bytes) -> str:
    """The value of a header, that of several lines joined by commas; KeyError where there is none."""
    values = get_all(self, key)
    if not values:
        raise KeyError(key)
    return ", ".join(values)


def get[T](self: http.Headers, key: str | bytes, default: T | None = None) -> str | T | None:
    """As `get_item`, with a default where there is no such header."""
    values = get_all(self, key)
    return ", ".join(values) if values else default


def contains(self: http.Headers, key: str | bytes) -> bool:
    """Whether there is such a header."""
    return bool(_values(self, key))


def _values(headers: http.Headers, name: str | bytes) -> list[bytes]:
    wanted = (name.encode("utf-8", "surrogateescape") if isinstance(name, str) else name).lower()
    return [value for key, value in headers.fields if key.lower() == wanted]


def current(self: optmanager._Option) -> object:
    """The value of an option, which the caller may change without changing the option."""
    value = self._default if self.value is optmanager.unset else self.value
    return value if isinstance(value, IMMUTABLE) else copy.deepcopy(value)


def trust(_message: http.MessageData) -> None:
    """Compare nothing: mypy knows what the hub puts into a message, and parsers of mitmproxy's make the others."""


HEADERS_SHOWN_BY = (
    "tests/addons/proxy/http/test_message_costs.py::test_mitmproxy_itself_calls_a_function_for_each_field"
)
PATCHES = (
    *(
        Patch(
            http.Headers,
            name,
            replacement,
            signature,
            "mitmproxy calls a function for each field at each read of a header",
            HEADERS_SHOWN_BY,
        )
        for name, replacement, signature in (
            ("get_all", get_all, "(self, name)"),
            ("__getitem__", get_item, MISSING),
            ("__contains__", contains, MISSING),
            ("get", get, MISSING),
        )
    ),
    Patch(
        optmanager._Option,
        "current",
        current,
        "(self)",
        "mitmproxy copies the value of an option twice at each read",
        "tests/addons/proxy/http/test_message_costs.py::test_mitmproxy_itself_copies_an_option_twice",
    ),
    Patch(
        http.MessageData,
        "__post_init__",
        trust,
        "(self)",
        "mitmproxy checks the type of each field of each message",
        "tests/addons/proxy/http/test_message_costs.py::test_mitmproxy_itself_checks_the_fields_of_each_message",
    ),
)
