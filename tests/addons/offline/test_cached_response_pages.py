"""Pages of lists are put together in the order in which the cloud gave them, within bounds."""

from __future__ import annotations

import pytest

from addons.offline import cached_response
from addons.offline.cached_response import MAX_GROWING, CachedResponse, GrowingLists, ResponseKey
from addons.telemetry import metrics
from tests.addons.support.observed import value_of
from tests.addons.support.offline_parts import JSON
from tests.addons.support.samples import raw

KEY = ResponseKey("list")


def page(following: str, version: str = "7") -> CachedResponse:
    metadata = {"resourceVersion": version, "continue": following}
    return CachedResponse({"content-type": JSON}, raw({"kind": "PodList", "metadata": metadata, "items": []}))


def test_a_list_of_one_page_is_whole_at_once() -> None:
    assert GrowingLists().add(KEY, "", page("")) == page("")


def test_a_list_is_whole_with_its_last_page() -> None:
    lists = GrowingLists()
    assert lists.add(KEY, "", page("1")) is None
    assert lists.add(KEY, "1", page("2")) is None
    whole = lists.add(KEY, "2", page(""))
    assert whole == page("1").followed_by("1", page("2")).followed_by("2", page(""))
    assert lists.add(KEY, "2", page("")) is None, "it grows no longer"


def test_pages_of_two_lists_are_not_put_together() -> None:
    """Two clients list the same: the list of the first is not kept."""
    lists = GrowingLists()
    lists.add(KEY, "", page("1", "7"))
    lists.add(KEY, "", page("x", "9"))
    assert lists.add(KEY, "1", page("", "7")) is None
    whole = lists.add(KEY, "x", page("", "9"))
    assert whole is not None
    assert [each.list_version() for _, each in whole.further] == [9]


@pytest.mark.parametrize("body", [b"", b"[]", b"<html>"])
def test_what_is_no_list_ends_its_list(body: bytes) -> None:
    lists = GrowingLists()
    lists.add(KEY, "", page("1"))
    assert lists.add(KEY, "1", CachedResponse({"content-type": JSON}, body)) is None
    assert lists.add(KEY, "1", page("")) is None


def test_a_list_is_as_large_as_a_kept_answer_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached_response, "MAX_KEPT", 2 * len(page("1").body))
    lists = GrowingLists()
    for token in ("", "1"):
        assert lists.add(KEY, token, page("1")) is None
    assert lists.add(KEY, "1", page("1")) is None
    assert lists.add(KEY, "1", page("")) is None


def test_lists_that_grow_are_bounded_and_others_push_out_none_of_the_node() -> None:
    told = metrics.BOUNDS_REACHED.labels("lists that grow")
    lists, before = GrowingLists(), value_of(told)
    lists.add(KEY, "", page("1"))
    others = [ResponseKey(str(number), "pod") for number in range(MAX_GROWING + 1)]
    for each in others:
        lists.add(each, "", page("1"))
    assert value_of(told) == before + 1
    assert [lists.add(each, "1", page("")) is not None for each in others] == [False, *[True] * MAX_GROWING]
    assert lists.add(KEY, "1", page("")) is not None
