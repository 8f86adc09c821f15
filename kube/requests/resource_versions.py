"""resourceVersions as numbers: etcd revisions, 64-bit and unsigned, that are compared and never invented."""

from kube.requests.quoting import quoted

# No uint64 has more digits. The limit saves int() from a megabyte of them.
_MAX_DIGITS = 20
_MAX_VERSION = 2**64 - 1


def parse_version(text: str) -> int:
    """The number of a resourceVersion; "" and "0", which name no version, are 0.

    Raises ValueError in the words of Go's strconv, which a kube-apiserver quotes. Stricter than the server's lists:
    a leading zero is refused, as by apimachinery's CompareResourceVersion, so that equal versions are equal texts.
    """
    if text in ("", "0"):
        return 0
    if not (text.isascii() and text.isdigit()) or text[0] == "0":
        raise ValueError(f"strconv.ParseUint: parsing {quoted(text)}: invalid syntax")
    number = int(text) if len(text) <= _MAX_DIGITS else _MAX_VERSION + 1
    if number > _MAX_VERSION:
        raise ValueError(f"strconv.ParseUint: parsing {quoted(text)}: value out of range")
    return number
