"""Records of triggers, and the differences between a record and the cluster."""

from __future__ import annotations

import base64
import zlib
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controllers.triggers.update_trigger import (
    LONGEST_TOPOLOGY,
    MAX_RECORD,
    MAX_UNPACKED,
    Seen,
    differences,
    digested,
    pack,
    read_record,
    record,
    unpack,
)
from kube.store.store import Key

TEXT = st.text("ab/é", max_size=3)
SEEN = st.builds(
    Seen,
    st.dictionaries(st.tuples(TEXT, TEXT), st.none() | TEXT, max_size=5),
    st.dictionaries(TEXT, st.frozensets(TEXT, max_size=3), max_size=3),
)


@settings(max_examples=40)
@given(SEEN)
def test_a_record_survives_encoding_and_decoding(seen: Seen) -> None:
    assert read_record(record("ns", "a", pack(seen))) == seen
    assert differences(seen, seen) == (set(), set())


@pytest.mark.parametrize(
    "packed",
    ["", "é", "garbage", "Z2FyYmFnZQ==", base64.b64encode(zlib.compress(b" " * (MAX_UNPACKED + 1))).decode()],
    ids=["empty", "not ASCII", "no base64", "not packed", "too large"],
)
def test_a_malformed_record_is_ignored(packed: str) -> None:
    assert unpack(packed) is None
    assert read_record({}) is None


def test_a_record_of_many_services_fits_into_an_annotation() -> None:
    topologies: dict[Key, str | None] = {
        (f"namespace-{n % 100}", f"service-{n}"): "openyurt.io/nodepool" for n in range(50_000)
    }
    pools = {f"pool-{n}": frozenset(f"node-{n}-{m}" for m in range(20)) for n in range(500)}
    assert len(pack(Seen(topologies, pools))) < MAX_RECORD


def test_long_topologies_are_distinguished_by_a_digest_and_fit() -> None:
    """The API server accepts annotations of 256 KiB, and random text compresses badly."""
    random = Random(23)
    topologies: dict[Key, str | None] = {
        ("ns", f"s{n}"): f"{random.randbytes(120_000).hex()}" for n in range(9)
    }
    before = Seen({key: digested(each) for key, each in topologies.items()})
    assert len(pack(before)) < 1000
    changed = {key: digested(f"{each}x") for key, each in topologies.items()}
    assert differences(before, Seen(changed)) == (set(topologies), set())
    assert differences(before, before) == (set(), set())


@pytest.mark.parametrize("topology", [None, "", "openyurt.io/nodepool", "x" * LONGEST_TOPOLOGY])
def test_a_short_topology_is_recorded_unmodified(topology: str | None) -> None:
    assert digested(topology) == topology
