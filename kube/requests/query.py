"""Parses query strings as kube-apiserver does: Go's rules for pairs, escapes, numbers and durations.

Go drops a malformed pair without an error. The hub must drop the same pairs, or it would answer another request than
the cloud.
"""

import re
from collections.abc import Collection
from urllib.parse import unquote_to_bytes

from kube.requests.quoting import quoted

MAX_PAIRS = 10_000
"""The most pairs of a query. Go 1.26 refuses more (net/url, urlmaxqueryparams), and so does the hub; older versions of
Go do not."""
BAD_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")

_INTEGER = re.compile("[+-]?([0-9]+)")
_MAX_INT64 = 2**63 - 1
# A 64-bit number has at most so many digits, apart from leading zeros. int() refuses thousands of digits.
_MAX_DIGITS = 19
_TOO_LARGE = 2**64

_DURATION_STEP = re.compile(r"([0-9]*)(\.[0-9]*)?([^0-9.]*)")
_NANOSECONDS = {
    "ns": 1,
    "us": 10**3,
    "\u00b5s": 10**3,  # micro sign
    "\u03bcs": 10**3,  # Greek letter mu
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}


def first_values(query: str, names: Collection[str]) -> dict[str, str]:
    """The first value of each named parameter; kube-apiserver ignores repetitions.

    ValueError if a named value is not UTF-8, or if there are too many pairs.
    """
    values: dict[str, str] = {}
    if not query:
        return values
    pairs = query.split("&")
    if len(pairs) > MAX_PAIRS:
        raise ValueError("number of URL query parameters exceeded limit")
    # One check of the whole query avoids one for each pair: components send neither semicolons nor bad escapes.
    suspect = ";" in query or BAD_ESCAPE.search(query) is not None
    for pair in pairs:
        if suspect and (";" in pair or BAD_ESCAPE.search(pair)):
            continue
        name, _, value = pair.partition("=")
        if name not in names:
            if "%" not in name and "+" not in name:
                continue
            name = _unescaped(name).decode(errors="replace")
        if name in names and name not in values:
            values[name] = _value(name, value) if "%" in value or "+" in value else value
    return values


def parse_bool(text: str) -> bool:
    """Parse a boolean parameter: "0" and "false" are false, every other text is true, even an empty one."""
    return not (text == "0" or text.casefold() == "false")


def parse_integer(text: str) -> int:
    """Parse a signed 64-bit decimal number; ValueError with the message of strconv.ParseInt."""
    match = _INTEGER.fullmatch(text)
    if match is None:
        raise ValueError(f"strconv.ParseInt: parsing {quoted(text)}: invalid syntax")
    negative = text[0] == "-"
    number = _natural(match[1])
    if number > _MAX_INT64 + negative:
        raise ValueError(f"strconv.ParseInt: parsing {quoted(text)}: value out of range")
    return -number if negative else number


def parse_duration(text: str) -> float:
    """Parse a duration such as "10s", "1m30s" or "-1.5h" to seconds; ValueError with the message of
    time.ParseDuration."""
    negative = text[:1] == "-"
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return 0.0
    nanoseconds, at = 0, 0
    while at < len(rest) or not rest:
        step = _DURATION_STEP.match(rest, at)
        digits, fraction, unit = step.groups(default="") if step else ("", "", "")
        number = _natural(digits)
        # The fraction after a number, such as ".25"; the int 0 for none, so that large numbers stay exact.
        share = float(f"0{fraction[:_MAX_DIGITS]}") if len(fraction) > 1 else 0
        if (not digits and len(fraction) < 2) or number > _MAX_INT64 + 1:
            raise ValueError(f"time: invalid duration {quoted(text)}")
        if not unit:
            raise ValueError(f"time: missing unit in duration {quoted(text)}")
        if unit not in _NANOSECONDS:
            raise ValueError(f"time: unknown unit {quoted(unit)} in duration {quoted(text)}")
        nanoseconds += int((number + share) * _NANOSECONDS[unit])
        if nanoseconds > _MAX_INT64 + negative:
            raise ValueError(f"time: invalid duration {quoted(text)}")
        at += len(digits) + len(fraction) + len(unit)
    return (-nanoseconds if negative else nanoseconds) / 10**9


def _natural(digits: str) -> int:
    digits = digits.lstrip("0")
    return int(digits or "0") if len(digits) <= _MAX_DIGITS else _TOO_LARGE


def _value(name: str, escaped: str) -> str:
    try:
        return _unescaped(escaped).decode()
    except UnicodeDecodeError:
        raise ValueError(f"the query parameter {name} is not valid UTF-8") from None


def _unescaped(text: str) -> bytes:
    return unquote_to_bytes(text.replace("+", " "))
