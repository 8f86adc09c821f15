"""Differences transfer the same events as an ordinary watch, in fewer bytes."""

from __future__ import annotations

from collections.abc import Iterator

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.differences.reader import DifferenceReader
from kube.differences.records import Former, event_record, state_records
from kube.wire.codec import codec_for
from kube.wire.codec_base import CHUNK, WatchFrame
from kube.wire.encoding import Encoding
from tests.kube.support.differences import Holder, endpoint_slice, written

JSON = codec_for(Encoding.JSON)


@given(
    changes=st.lists(st.tuples(st.integers(0, 3), st.text(max_size=40), st.booleans()), max_size=12),
    cuts=st.lists(st.integers(1, 200), max_size=6),
)
def test_any_changes_in_any_chunks_are_decoded_unchanged(
    changes: list[tuple[int, str, bool]], cuts: list[int]
) -> None:
    def watch() -> Iterator[WatchFrame]:
        """Yield events like a server: objects are added, modified and deleted."""
        held: set[int] = set()
        for version, (number, text, goes) in enumerate(changes, start=1):
            meta = {"name": f"o-{number}", "namespace": "default", "resourceVersion": str(version)}
            obj = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": meta, "data": {"text": text}}
            kind = "ADDED" if number not in held else "DELETED" if goes else "MODIFIED"
            held = held - {number} if kind == "DELETED" else held | {number}
            raw = orjson.dumps(obj)
            yield WatchFrame(kind, "v1", "ConfigMap", raw, peek=JSON.peek(raw))

    frames = list(watch())
    stream = b"".join(written(JSON, frames))
    holder = Holder(JSON)
    read: list[WatchFrame] = []
    for size in cuts:
        read += holder.feed(stream[:size])
        stream = stream[size:]
    assert read + holder.read(stream) == frames


def test_a_changed_endpoint_takes_less_than_a_thirtieth_of_the_bytes() -> None:
    before, after = endpoint_slice("a", 7, ready=True), endpoint_slice("a", 8, ready=False)
    frame = JSON.encode_event("MODIFIED", "discovery.k8s.io/v1", "EndpointSlice", after)
    record = event_record(frame, Former("default", "a", 7, before))
    assert len(record) * 30 < len(frame)


def test_a_state_is_encoded_as_one_stream_in_pieces() -> None:
    items = [endpoint_slice(f"slice-{number}", 7 + number) for number in range(200)]
    frames = [JSON.encode_event("ADDED", "discovery.k8s.io/v1", "EndpointSlice", each) for each in items]
    records = list(state_records(frames))
    assert 1 < len(records) <= -(-sum(map(len, frames)) // CHUNK)
    assert sum(map(len, records)) * 20 < sum(map(len, frames))
    assert [each.raw for each in Holder(JSON).read(b"".join(records))] == items


@pytest.mark.parametrize(
    ("name", "version"),
    [("é" * 128, 7), ("a", -1)],
    ids=["a name that is too long for the record", "a version that is none"],
)
def test_an_unknown_predecessor_is_sent_without_a_prefix(name: str, version: int) -> None:
    raw = endpoint_slice("a", 8)
    frame = JSON.encode_event("MODIFIED", "discovery.k8s.io/v1", "EndpointSlice", raw)
    record = event_record(frame, Former("default", name, version, raw))
    (read,) = DifferenceReader(JSON, lambda *_: None).feed(record)
    assert read.raw == raw
