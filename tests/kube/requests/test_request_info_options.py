"""Options of lists and watches that kube-apiserver 1.36 refuses, with its messages."""

import pytest

from kube.errors import StatusError
from kube.requests.request_info import ListOptions, validate_list_options

MATCH, EVENTS = "resourceVersionMatch", "sendInitialEvents"


@pytest.mark.parametrize(
    "options",
    [
        ListOptions(),
        ListOptions(resource_version="0"),
        ListOptions(resource_version="12", resource_version_match="Exact"),
        ListOptions(resource_version="0", resource_version_match="NotOlderThan"),
        ListOptions(continue_token="x", limit=1),
        ListOptions(label_selector="!a", field_selector="metadata.name=x"),
        ListOptions(watch=True),
        ListOptions(watch=True, resource_version="12", continue_token="x"),
        ListOptions(watch=True, send_initial_events=True, resource_version_match="NotOlderThan"),
        ListOptions(watch=True, send_initial_events=False, resource_version_match="NotOlderThan"),
    ],
)
def test_valid_options_are_accepted(options: ListOptions) -> None:
    def refusal() -> StatusError | None:
        try:
            validate_list_options(options)
        except StatusError as error:
            return error
        return None

    assert refusal() is None


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            ListOptions(resource_version_match="Exact"),
            f"{MATCH}: Forbidden: {MATCH} is forbidden unless resourceVersion is provided",
        ),
        (
            ListOptions(resource_version_match="Exact", resource_version="0"),
            f'{MATCH}: Forbidden: {MATCH} "exact" is forbidden for resourceVersion "0"',
        ),
        (
            ListOptions(resource_version_match="exact", resource_version="1"),
            f'{MATCH}: Unsupported value: "exact": supported values: "Exact", "NotOlderThan", ""',
        ),
        (
            ListOptions(resource_version_match="foo", resource_version="0", continue_token="x"),
            f"[{MATCH}: Forbidden: {MATCH} is forbidden when continue is provided, "
            f'{MATCH}: Unsupported value: "foo": supported values: "Exact", "NotOlderThan", ""]',
        ),
        (ListOptions(send_initial_events=False), f"{EVENTS}: Forbidden: {EVENTS} is forbidden for list"),
        (
            ListOptions(watch=True, send_initial_events=True),
            f"{MATCH}: Forbidden: {EVENTS} requires setting {MATCH} to NotOlderThan",
        ),
        (
            ListOptions(watch=True, resource_version_match="NotOlderThan"),
            f"{MATCH}: Forbidden: {MATCH} is forbidden for watch unless {EVENTS} is provided",
        ),
        (
            ListOptions(watch=True, resource_version_match="Exact"),
            f"[{MATCH}: Forbidden: {MATCH} is forbidden for watch unless {EVENTS} is provided, "
            f'{MATCH}: Unsupported value: "Exact": supported values: "NotOlderThan"]',
        ),
        (
            ListOptions(
                watch=True, send_initial_events=True, resource_version_match="Exact", continue_token="x"
            ),
            f"[{MATCH}: Forbidden: {EVENTS} requires setting {MATCH} to NotOlderThan, "
            f'{MATCH}: Unsupported value: "Exact": supported values: "NotOlderThan", '
            f"{MATCH}: Forbidden: {MATCH} is forbidden when continue is provided]",
        ),
        (
            ListOptions(watch=True, continue_token="x"),
            f"{MATCH}: Forbidden: {MATCH} is forbidden when continue is provided",
        ),
    ],
)
def test_incompatible_options_are_refused(options: ListOptions, why: str) -> None:
    with pytest.raises(StatusError) as error:
        validate_list_options(options)
    assert (error.value.code, error.value.reason) == (422, "Invalid")
    assert error.value.message == f'ListOptions.meta.k8s.io "" is invalid: {why}'
    assert error.value.details["kind"] == "ListOptions"
    assert all(cause["field"] in (MATCH, EVENTS) for cause in error.value.details["causes"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (ListOptions(label_selector="a=b=c"), "found '=', expected: ',' or 'end of string'"),
        (ListOptions(field_selector="foo"), "invalid selector: 'foo'; can't understand 'foo'"),
        (
            ListOptions(watch=True, label_selector=",", resource_version="x"),
            "found ',', expected: !, identifier, or 'end of string'",
        ),
    ],
)
def test_malformed_selectors_are_refused(options: ListOptions, message: str) -> None:
    with pytest.raises(StatusError) as error:
        validate_list_options(options)
    assert (error.value.code, error.value.message) == (400, message)


@pytest.mark.parametrize(
    ("version", "why"),
    [("abc", "invalid syntax"), ("-1", "invalid syntax"), ("18446744073709551616", "value out of range")],
)
def test_malformed_versions_are_refused(version: str, why: str) -> None:
    said = f'resourceVersion: Invalid value: "{version}": strconv.ParseUint: parsing "{version}": {why}'
    with pytest.raises(StatusError) as error:
        validate_list_options(ListOptions(resource_version=version))
    assert (error.value.code, error.value.message) == (400, f"invalid resource version: {said}")
    with pytest.raises(StatusError) as error:
        validate_list_options(ListOptions(resource_version=version, watch=True))
    assert (error.value.code, error.value.reason, error.value.message) == (500, "", said)


def test_a_version_with_a_leading_zero_is_refused_by_the_hub_only() -> None:
    with pytest.raises(StatusError, match="invalid resource version"):
        validate_list_options(ListOptions(resource_version="007"))
