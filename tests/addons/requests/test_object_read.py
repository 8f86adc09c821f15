"""Reads as values: a table of targets, and the refusals of a kube-apiserver."""

from __future__ import annotations

import pytest

from addons.requests.object_read import parse_continued
from kube.errors import StatusError
from kube.requests.continue_tokens import ContinueToken
from kube.requests.request_info import ListOptions
from kube.wire.encoding import Encoding
from tests.addons.support.samples import SERVICES, read_of

ONE = "/api/v1/namespaces/a/services/web"


@pytest.mark.parametrize(
    ("target", "verb", "version", "consistent", "state"),
    [
        (SERVICES, "list", 0, True, False),
        (f"{SERVICES}?resourceVersion=0", "list", 0, False, False),
        (f"{SERVICES}?resourceVersion=7", "list", 7, False, False),
        (f"{SERVICES}?watch=true", "watch", 0, True, True),
        (f"{SERVICES}?watch=true&resourceVersion=0", "watch", 0, False, True),
        (f"{SERVICES}?watch=true&resourceVersion=7", "watch", 7, False, False),
        (
            f"{SERVICES}?watch=1&resourceVersion=7&sendInitialEvents=1&resourceVersionMatch=NotOlderThan",
            "watch",
            7,
            False,
            True,
        ),
        (
            f"{SERVICES}?watch=1&sendInitialEvents=0&resourceVersionMatch=NotOlderThan",
            "watch",
            0,
            False,
            False,
        ),
        (f"{ONE}?resourceVersion=nonsense", "get", 0, False, False),
    ],
)
def test_versions_and_what_they_ask_for(
    target: str, verb: str, version: int, consistent: bool, state: bool
) -> None:
    read = read_of(target)
    assert (read.verb, read.version, read.is_consistent, read.wants_state) == (
        verb,
        version,
        consistent,
        state,
    )


def test_selectors_match_and_pages() -> None:
    read = read_of(
        f"{SERVICES}?labelSelector=b,a%3D1&fieldSelector=metadata.name%3Dx&resourceVersion=5"
        "&resourceVersionMatch=Exact&timeoutSeconds=3"
    )
    assert (read.labels.canonical, read.fields.canonical) == ("a=1,b", "metadata.name=x")
    assert (read.is_exact, read.name, read.timeout_seconds, read.continued) == (True, "x", 3, None)
    assert read_of(f"{SERVICES}?watch=1&allowWatchBookmarks=1").bookmarks


def test_forms_come_in_the_clients_order() -> None:
    accept = "application/vnd.kubernetes.protobuf, application/json"
    assert [each.encoding for each in read_of(SERVICES, accept).accepted] == [
        Encoding.PROTOBUF,
        Encoding.JSON,
    ]


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("labelSelector=%3D%3D", 400),
        ("fieldSelector=x", 400),
        ("resourceVersion=x", 400),
        ("resourceVersion=-1", 400),
        ("watch=1&resourceVersion=x", 500),
        ("resourceVersionMatch=Exact", 422),
        ("watch=1&sendInitialEvents=1", 422),
    ],
)
def test_what_a_kube_apiserver_refuses(query: str, code: int) -> None:
    with pytest.raises(StatusError) as caught:
        read_of(f"{SERVICES}?{query}")
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("query", "limit", "exact", "consistent"),
    [
        ("limit=2", 2, False, True),
        ("limit=-2", 0, False, True),
        ("limit=2&resourceVersion=0", 0, False, False),
        ("limit=2&resourceVersion=5", 2, True, False),
        ("resourceVersion=5", 0, False, False),
        ("limit=2&resourceVersion=5&resourceVersionMatch=NotOlderThan", 2, False, False),
        (f"limit=2&continue={ContinueToken(5, 'x').encode()}", 2, False, False),
        (f"limit=2&continue={ContinueToken(-1, 'x').encode()}", 2, False, True),
    ],
)
def test_pages(query: str, limit: int, exact: bool, consistent: bool) -> None:
    """As kube-apiserver's: the limit of version 0 is ignored, that of another version makes the version exact."""
    read = read_of(f"{SERVICES}?{query}")
    assert (read.limit, read.is_exact, read.is_consistent) == (limit, exact, consistent)


def test_a_page_goes_on_at_its_own_version() -> None:
    token = ContinueToken(5, "x").encode()
    assert read_of(f"{SERVICES}?continue={token}").continued == ContinueToken(5, "x")
    options = ListOptions(continue_token=token, resource_version="5")
    with pytest.raises(StatusError, match="specifying resource version is not allowed when using continue"):
        parse_continued(options)
