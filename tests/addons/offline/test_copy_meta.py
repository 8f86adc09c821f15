"""What the disk says of a copy: read back as it was written, and never trusted."""

from __future__ import annotations

from typing import Any

import pytest

from addons.offline.copy_meta import described, list_watch_of, source_name, witness_of
from kube.reflector.list_watch import ListWatch
from kube.requests.request_info import ResourceType
from kube.store.store import Witness
from kube.wire.encoding import Encoding

PODS = ResourceType("", "v1", "pods")
ASKED = [
    ListWatch(PODS),
    ListWatch(PODS, "a", encoding=Encoding.JSON),
    ListWatch(PODS, label_selector="app=x", field_selector="spec.nodeName=n", metadata_only=True),
]


@pytest.mark.parametrize("list_watch", ASKED)
def test_a_list_watch_is_read_as_it_was_written(list_watch: ListWatch) -> None:
    assert list_watch_of({"question": described(list_watch)}) == list_watch


def test_each_identity_and_list_watch_has_a_name_of_its_own() -> None:
    assert len({source_name(user, each) for user in ("", "u") for each in ASKED}) == 2 * len(ASKED)


@pytest.mark.parametrize(
    ("witness", "expected"),
    [
        (["a", "x", 7], Witness(("a", "x"), 7)),
        ([], None),
        (None, None),
        (["a", "x", "7"], None),
        (["a"], None),
    ],
)
def test_a_witness_that_is_none_is_none(witness: Any, expected: Witness | None) -> None:
    assert witness_of({"witness": witness}) == expected
