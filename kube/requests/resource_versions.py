"""resourceVersions as numbers: unsigned 64-bit etcd revisions, which are compared and never invented."""

from kube.requests.quoting import quoted

# No uint64 has more digits. The limit avoids int() on a megabyte of digits.
_MAX_DIGITS = 20
_MAX_VERSION = 2**64 - 1


def parse_version(text: str) -> int:
    """Parse a resourceVersion. "" and "0", which name no version, become 0.

    ValueError with the message of Go's strconv, which kube-apiserver quotes. Stricter than kube-apiserver's lists: a
    leading zero is refused, as by apimachinery's CompareResourceVersion, so that equal versions are equal texts.
    """
    if text in ("", "0"):
        return 0
    if not (text.isascii() and text.isdigit()) or text[0] == "0":
        raise ValueError(f"strconv.ParseUint: parsing {quoted(text)}: invalid syntax")
    number = int(text) if len(text) <= _MAX_DIGITS else _MAX_VERSION + 1
    if number > _MAX_VERSION:
        raise ValueError(f"strconv.ParseUint: parsing {quoted(text)}: value out of range")
    return number
