"""A chain of filters as a projection calls it: its verdicts, the inputs that it read, and its metrics."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from addons.filters.filter import Filter
from addons.filters.inputs import Inputs
from addons.filters.verdict import Note, Verdict, changed, dropped, ignore_note, kept
from addons.inputs.filter_chain import TRIGGERS, FilterChain, is_only_triggered
from addons.inputs.filter_inputs import FilterInputs
from addons.telemetry import metrics
from kube.store.store import Item, Store
from kube.wire.api_objects import ApiObject
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from tests.addons.filters.support.samples import Sample, endpoint, endpoint_slice
from tests.addons.support.observed import value_of
from tests.addons.support.samples import fill, service

RESOURCE = "test-services"


class RecordedInputs:
    """Inputs that record the reads."""

    def __init__(self, pending: bool) -> None:
        self.reads: set[object] = set()
        self.pending = pending

    def service(self, namespace: str, name: str) -> None:
        self.reads.add((namespace, name))


class Saying:
    """A filter that reads one Service and returns a given verdict, or raises a given error."""

    resources = frozenset({("", "services")})
    components = verbs = reasons = frozenset[str]()

    def __init__(self, verdict: Verdict | Exception, name: str = "saying") -> None:
        self.name = name
        self._verdict = verdict

    def apply(self, obj: ApiObject, inputs: Inputs, note: Note = ignore_note) -> Verdict:
        inputs.service("default", "asked")
        if isinstance(self._verdict, Exception):
            raise self._verdict
        if self._verdict.outcome == "changed":
            obj.fields.child("spec").set("type", "Changed")
        return self._verdict


def chain(*filters: object, pending: bool = False) -> FilterChain:
    inputs = cast(FilterInputs, SimpleNamespace(ask=lambda: RecordedInputs(pending)))
    return FilterChain(cast("tuple[Filter, ...]", filters), inputs, RESOURCE)


@pytest.fixture
def item() -> Item:
    store = Store()
    fill(store, [service("web", 5, type="ClusterIP")], 7)
    found = store.get(("default", "web"))
    assert found is not None
    return found


def objects(outcome: str, name: str = "saying") -> float:
    return value_of(metrics.FILTER_OBJECTS.labels(name, RESOURCE, outcome))


def hidden() -> float:
    return value_of(metrics.FILTER_ERRORS.labels(RESOURCE))


def test_a_changed_object_has_the_key_version_and_labels_of_the_original(item: Item) -> None:
    found = chain(Saying(changed("because"))).evaluate(item).item
    assert found is not None
    assert found is not item
    assert (found.key, found.version, found.labels) == (item.key, item.version, item.labels)
    assert b"Changed" in found.raw
    assert b"Changed" not in item.raw, "the store's copy is not touched"
    assert found.field("spec.type") == "ClusterIP"


def test_each_filter_of_the_chain_is_counted_by_outcome_and_reason(item: Item) -> None:
    before = objects("kept", "one"), objects("dropped", "two"), objects("kept", "three")
    reasons = value_of(metrics.FILTER_REASONS.labels("two", "why"))
    made = chain(Saying(kept("a"), "one"), Saying(dropped("why"), "two"), Saying(kept("b"), "three"))
    made.evaluate(item)
    made.evaluate(item)
    after = objects("kept", "one"), objects("dropped", "two"), objects("kept", "three")
    assert [one - other for one, other in zip(after, before, strict=True)] == [2, 2, 0]
    assert value_of(metrics.FILTER_REASONS.labels("two", "why")) == reasons + 2


def test_an_object_with_a_missing_input_is_pending_and_not_counted(item: Item) -> None:
    before = objects("kept")
    found = chain(Saying(kept("because")), pending=True).evaluate(item)
    assert found.pending
    assert found.reads == {("default", "asked")}
    assert objects("kept") == before


def test_an_object_that_a_filter_cannot_judge_is_hidden_and_counted(
    item: Item, caplog: pytest.LogCaptureFixture
) -> None:
    before = hidden()
    found = chain(Saying(RuntimeError("broken")), Saying(kept("never asked"))).evaluate(item)
    assert (found.item, found.pending) == (None, False)
    assert found.reads == {("default", "asked")}, "it is judged again when its input changes"
    assert hidden() == before + 1
    assert "default/web" in caplog.text


def test_objects_that_a_filter_cannot_judge_are_logged_once_a_minute(
    item: Item, caplog: pytest.LogCaptureFixture
) -> None:
    """Half a million such objects once took five minutes of the event loop and a gigabyte of log."""
    before, broken = hidden(), chain(Saying(RuntimeError("broken")))
    for _ in range(100):
        broken.evaluate(item)
    assert (hidden(), len(caplog.records)) == (before + 100, 1)


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff", b"[]"])
def test_an_object_that_cannot_be_read_is_hidden_and_counted(item: Item, raw: bytes) -> None:
    before = hidden()
    broken = Item(item.store, item.key, item.version, item.labels, raw)
    assert chain(Saying(kept("because"))).evaluate(broken).item is None
    assert hidden() == before + 1


def test_an_object_whose_change_cannot_be_encoded_is_hidden(
    item: Item, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Any) -> bytes:
        raise ValueError("cannot encode")

    monkeypatch.setattr(ApiObject, "encode", fail)
    before = hidden()
    assert chain(Saying(changed("because"))).evaluate(item).item is None
    assert hidden() == before + 1


FIRST = {TRIGGERS[0]: "1"}


@pytest.mark.parametrize("encoding", list(Encoding), ids=lambda each: each.name)
@pytest.mark.parametrize(
    ("before", "after", "only"),
    [
        (FIRST, {TRIGGERS[0]: "2"}, True),
        ({}, {TRIGGERS[1]: "2"}, True),
        ({"x": "1"} | FIRST, {"x": "1"}, True),
        (FIRST, FIRST, False),
        (FIRST, {TRIGGERS[0]: "2", "node": "n2"}, False),
        (FIRST, {TRIGGERS[0]: "2", "x": "1"}, False),
        (FIRST, FIRST | {"x": "1"}, False),
        ({}, {"x": "1"}, False),
        (FIRST, FIRST | {"node": "n2"}, False),
    ],
)
def test_a_change_of_the_trigger_annotation_alone_is_recognized(
    encoding: Encoding, before: dict[str, str], after: dict[str, str], only: bool
) -> None:
    def sliced(version: int, encoding: Encoding, **content: Any) -> Item:
        sample: Sample = endpoint_slice(
            [endpoint("10.0.0.1", content.pop("node", "n1"))], annotations=content or None
        )
        sample.content["metadata"]["resourceVersion"] = str(version)
        store = Store()
        raw = sample.build(encoding).encode()
        store.replace(codec_for(encoding), sample.api_version, sample.kind, version, [raw])
        return next(iter(store))

    assert is_only_triggered(sliced(1, encoding, **before), sliced(2, encoding, **after)) is only
