"""The syntax of label keys and values; the messages are those of kube-apiserver 1.36."""

import pytest

from kube.requests.label_syntax import key_faults, value_faults

NAME_RULE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', "
    "regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', "
    "regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
PREFIX_RULE = (
    "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character (e.g. 'example.com', "
    r"regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


@pytest.mark.parametrize(
    "key",
    ["a", "A.b_c-9", "a" * 63, "kubernetes.io/service-name", f"{'a' * 253}/{'b' * 63}", "a/in", "notin"],
)
def test_valid_label_keys_are_accepted(key: str) -> None:
    assert key_faults(key) == []


@pytest.mark.parametrize(
    ("key", "faults"),
    [
        ("-a", [f"name part {NAME_RULE}"]),
        ("a-", [f"name part {NAME_RULE}"]),
        ("a\n", [f"name part {NAME_RULE}"]),
        ("é", [f"name part {NAME_RULE}"]),
        ("", ["name part must be non-empty", f"name part {NAME_RULE}"]),
        ("a/", ["name part must be non-empty", f"name part {NAME_RULE}"]),
        ("/a", ["prefix part must be non-empty"]),
        ("a" * 64, ["name part must be no more than 63 bytes"]),
        ("é" * 32, ["name part must be no more than 63 bytes", f"name part {NAME_RULE}"]),
        (f"{'a' * 254}/b", ["prefix part must be no more than 253 bytes"]),
        ("A.b/c", [PREFIX_RULE]),
        ("a..b/c", [PREFIX_RULE]),
        (
            "a/b/c",
            [
                f"a valid label key {NAME_RULE} with an optional DNS subdomain prefix and '/' "
                "(e.g. 'example.com/MyName')"
            ],
        ),
    ],
)
def test_invalid_label_keys_are_refused(key: str, faults: list[str]) -> None:
    assert key_faults(key) == faults


@pytest.mark.parametrize("value", ["", "a", "A.b_c-9", "a" * 63])
def test_valid_label_values_are_accepted(value: str) -> None:
    assert value_faults(value) == []


@pytest.mark.parametrize(
    ("value", "faults"),
    [
        ("-b", [VALUE_RULE]),
        ("b.", [VALUE_RULE]),
        ("a/b", [VALUE_RULE]),
        ("b\n", [VALUE_RULE]),
        ("v" * 64, ["must be no more than 63 bytes"]),
        ("-" * 64, ["must be no more than 63 bytes", VALUE_RULE]),
    ],
)
def test_invalid_label_values_are_refused(value: str, faults: list[str]) -> None:
    assert value_faults(value) == faults
