"""Many labels of an object are stored as a few texts, transparently to readers."""

from __future__ import annotations

import gc
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.store import many_labels
from kube.store.many_labels import MANY, LabelTexts, compact_labels
from kube.store.store import Store
from kube.wire.api_objects import decode_object
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from tests.kube.support.toys import EMPTY

TEXTS = st.text(st.characters(exclude_characters="\0\n"), max_size=4)
LABELS = st.dictionaries(TEXTS, TEXTS, max_size=9)


@given(LABELS, LABELS, st.integers(1, 4))
def test_packed_labels_equal_the_original_ones(
    labels: dict[str, str], others: dict[str, str], many: int
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(many_labels, "MANY", many)
        texts = LabelTexts(labels)
        assert dict(texts) == labels
        assert (len(texts), sorted(texts)) == (len(labels), sorted(labels))
        assert {key: texts.get(key) for key in others} == {key: labels.get(key) for key in others}
        assert (texts == LabelTexts(others)) is (texts == others) is (labels == others)


@pytest.mark.parametrize("odd", [{"a\n": ""}, {"a": "\0"}, {"a": "\nb\0c"}])
def test_few_labels_and_invalid_ones_are_stored_unpacked(odd: dict[str, str]) -> None:
    few = {f"k{number}": "" for number in range(MANY - 1)}
    assert compact_labels(few) is few
    assert isinstance(compact_labels({**few, "more": ""}), LabelTexts)
    mixed = {**few, **odd}
    assert compact_labels(mixed) is mixed


def test_a_store_takes_a_quarter_of_the_memory_for_many_labels(encoding: Encoding) -> None:
    labels = {f"key-{number}": f"value-{number % 7}" for number in range(20_000)}
    made = decode_object(encoding, "v1", "Service", EMPTY[encoding])
    made.fields.child("metadata").set("name", "x")
    made.fields.child("metadata").set_mapping("labels", labels)
    store = Store()
    store.replace(codec_for(encoding), "v1", "Service", 1, [made.encode()])
    (item,) = store
    assert item.labels == labels
    as_a_dict = sys.getsizeof(labels) + sum(map(sys.getsizeof, [*labels, *labels.values()]))
    assert sys.getsizeof(item.labels) < as_a_dict / 4


def test_received_label_keys_are_not_retained() -> None:
    labels = {f"key-{number}": "" for number in range(2 * MANY)}
    compact = compact_labels(labels)
    assert isinstance(compact, LabelTexts)
    came = {id(key) for key in labels}
    held = [compact]
    for _ in range(3):
        held += [each for holder in held for each in gc.get_referents(holder)]
    assert not came & {id(each) for each in held}
