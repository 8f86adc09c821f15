"""The history of a view: order, positions, and what may be promised to a client that comes back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.store.ring import Frame, Ring, Rings

EVERYTHING = 10**9


def frames(ring: Ring, position: int) -> list[bytes]:
    return [entry.frame for entry in ring.read(position, ring.end)]


def test_what_an_input_caused_is_replayed_to_a_client_of_that_very_version() -> None:
    ring = Ring(10)
    ring.append(12, Frame(b"cloud"))
    ring.touch(20)
    ring.append(7, Frame(b"input"))
    assert frames(ring, ring.position_after(20)) == [b"input"]
    assert frames(ring, ring.position_after(12)) == [b"input"]
    ring.append(21, Frame(b"next"))
    assert frames(ring, ring.position_after(20)) == [b"input", b"next"]
    assert frames(ring, ring.position_after(21)) == []


@pytest.mark.parametrize(("max_events", "max_bytes"), [(2, EVERYTHING), (EVERYTHING, 2)])
def test_trimming_forgets_the_oldest_and_says_so(max_events: int, max_bytes: int) -> None:
    ring = Ring(10)
    for version, frame in ((11, b"a"), (12, b"b"), (13, b"c")):
        ring.append(version, Frame(frame))
    start = ring.position_after(10)
    ring.trim(max_events, max_bytes)
    assert ring.oldest == 11
    assert frames(ring, ring.position_after(11)) == [b"b", b"c"]
    with pytest.raises(LookupError):
        ring.read(start, ring.end)


def test_a_trimmed_event_of_an_input_makes_its_version_too_old() -> None:
    ring = Ring(10)
    ring.append(5, Frame(b"input"))
    ring.append(11, Frame(b"a"))
    ring.append(12, Frame(b"b"))
    ring.trim(2, EVERYTHING)
    assert ring.oldest == 11


def test_of_rings_with_one_bound_the_largest_lose_their_oldest_events() -> None:
    bound = Rings(10)
    rings = [Ring(0, bound) for _ in range(3)]
    for ring, count in zip(rings, (1, 4, 8), strict=True):
        for version in range(1, count + 1):
            ring.append(version, Frame(b"a"))
    bound.trim()
    assert ([ring.bytes for ring in rings], bound.bytes) == ([1, 4, 5], 10)
    rings[0].append(9, Frame(b"much" * 5))
    bound.trim()
    assert [ring.bytes for ring in rings] == [20, 1, 1], "each keeps its last event"
    rings[0].close()
    rings[1].restart(9)
    assert (bound.bytes, list(bound.members)) == (1, rings[1:])
    assert frames(rings[0], rings[0].start) == [b"much" * 5], "for the last watchers"


def test_a_read_ends_where_it_is_told_to() -> None:
    ring = Ring(10)
    for version, frame in ((11, b"a"), (12, b"b"), (13, b"c")):
        ring.append(version, Frame(frame))
    assert [event.frame for event in ring.read(0, 2)] == [b"a", b"b"]
    assert ring.read(2, 2) == []


def test_the_last_event_is_kept_whatever_its_size() -> None:
    ring = Ring(1)
    ring.append(2, Frame(b"large"))
    ring.trim(EVERYTHING, 1)
    assert frames(ring, ring.start) == [b"large"]


def test_a_restart_forgets_everything_and_loses_every_position() -> None:
    ring = Ring(10)
    ring.append(11, Frame(b"a"))
    position = ring.position_after(10)
    ring.restart(3)
    assert ring.oldest == 3
    with pytest.raises(LookupError):
        ring.read(position, ring.end)
    ring.append(4, Frame(b"b"))
    assert frames(ring, ring.position_after(3)) == [b"b"]


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 5)), max_size=40), st.integers(0, 60))
def test_positions_split_history_by_version_and_sequence(steps: list[tuple[bool, int]], seen: int) -> None:
    ring, version, expected = Ring(0), 0, []
    for number, (from_cloud, ahead) in enumerate(steps):
        frame = str(number).encode()
        if from_cloud:
            version += ahead
            ring.append(version, Frame(frame))
        else:
            ring.append(0, Frame(frame))
        if version > seen or (version == seen and not from_cloud):
            expected.append(frame)
    assert frames(ring, ring.position_after(seen)) == expected
    versions = [(entry.version, entry.sequence) for entry in ring.read(ring.start, ring.end)]
    assert versions == sorted(set(versions))
