"""The syntax of label keys and values, with kube-apiserver's error messages.

Rules and wording: k8s.io/apimachinery, pkg/api/validate/content.
"""

import re

MAX_NAME = 63
"""The most bytes of a key's name, and of a value."""
MAX_PREFIX = 253
"""The most bytes of a key's DNS prefix."""

_NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = f"({_NAME})?"
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"

_NAME_PATTERN = re.compile(_NAME)
_VALUE_PATTERN = re.compile(_VALUE)
_SUBDOMAIN_PATTERN = re.compile(_SUBDOMAIN)

_CHARACTERS = (
    "consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character"
)
_NAME_RULE = (
    f"must {_CHARACTERS} (e.g. 'MyName',  or 'my.name',  or '123-abc', "
    f"regex used for validation is '{_NAME}')"
)
_VALUE_RULE = (
    f"a valid label must be an empty string or {_CHARACTERS} (e.g. 'MyValue',  or 'my_value',  or '12345', "
    f"regex used for validation is '{_VALUE}')"
)
_PREFIX_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character (e.g. 'example.com', "
    f"regex used for validation is '{_SUBDOMAIN}')"
)
_KEY_RULE = f"a valid label key {_NAME_RULE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"


def key_faults(key: str) -> list[str]:
    """The errors in a label's key; empty if valid."""
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        return [_KEY_RULE]
    faults = []
    if slash and not prefix:
        faults.append("prefix part must be non-empty")
    elif prefix:
        if _bytes(prefix) > MAX_PREFIX:
            faults.append(f"prefix part must be no more than {MAX_PREFIX} bytes")
        if not _SUBDOMAIN_PATTERN.fullmatch(prefix):
            faults.append(f"prefix part {_PREFIX_RULE}")
    if not name:
        faults.append("name part must be non-empty")
    elif _bytes(name) > MAX_NAME:
        faults.append(f"name part must be no more than {MAX_NAME} bytes")
    if not _NAME_PATTERN.fullmatch(name):
        faults.append(f"name part {_NAME_RULE}")
    return faults


def value_faults(value: str) -> list[str]:
    """The errors in a label's value; empty if valid. "" is valid."""
    faults = []
    if _bytes(value) > MAX_NAME:
        faults.append(f"must be no more than {MAX_NAME} bytes")
    if not _VALUE_PATTERN.fullmatch(value):
        faults.append(_VALUE_RULE)
    return faults


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="replace"))
