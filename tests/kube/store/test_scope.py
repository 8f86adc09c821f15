"""The index of scopes finds every listener whose scope includes an object, and examines few others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.store.projection import Projection
from kube.store.scope import EVERYTHING, Scope, ScopeIndex
from kube.store.store import Item
from tests.kube.store.test_projection import Steps
from tests.kube.support.toys import Toy, filled, scope, tell
from tests.support.cpu_time import own_seconds

SCOPES = (
    EVERYTHING,
    scope("a"),
    scope(labels="app=web"),
    scope(labels="app in (web,db)"),
    scope(labels="app notin (web)"),
    scope(labels="!app"),
    scope("b", "app=db"),
    scope(fields="metadata.name=x"),
    scope(fields="metadata.namespace=b"),
    scope(fields="metadata.namespace!=b"),
    scope("a", "app=web", "metadata.name=y"),
    scope(fields="spec.clusterIP!=None"),
)
APPS = st.sampled_from(["", "web", "db"])
TOYS = st.builds(Toy, name=st.sampled_from("xy"), namespace=st.sampled_from("ab"), app=APPS)


def item_of(toy: Toy) -> Item:
    found = filled(10, toy).get(toy.key)
    assert found is not None
    return found


@given(st.lists(st.sampled_from(SCOPES), max_size=6), st.sets(st.integers(0, 5)), TOYS, APPS)
def test_a_scope_that_matches_a_state_of_an_object_is_found_once(
    scopes: list[Scope], removed: set[int], toy: Toy, later: str
) -> None:
    index: ScopeIndex[int] = ScopeIndex()
    for number, each in enumerate(scopes):
        index.add(number, each)
    for number in removed & set(range(len(scopes))):
        index.remove(number)
    items = [item_of(toy), item_of(Toy(toy.name, toy.namespace, app=later))]
    found = list(index.concerned(toy.key, items))
    assert len(found) == len(set(found))
    left = set(range(len(scopes))) - removed
    assert set(index) == left
    matching = {number for number in left if any(scopes[number].matches(item) for item in items)}
    assert matching <= set(found) <= left


def test_an_emptied_index_has_no_entries() -> None:
    index: ScopeIndex[int] = ScopeIndex()
    for number, each in enumerate(SCOPES):
        index.add(number, each)
    for number in range(len(SCOPES)):
        index.remove(number)
    assert (len(index), index._anchored, index._unanchored, index._keys) == (0, {}, {}, {})


def test_labels_that_no_scope_names_cost_nothing() -> None:
    """A user who may create an object can give it 100,000 labels; each of its events once took 0.4 s."""
    index: ScopeIndex[int] = ScopeIndex()
    index.add(1, scope(labels="app=web"))
    item = item_of(Toy(app="web"))
    item.labels = {"app": "web", **{f"k{number}": "" for number in range(100_000)}}

    def looked_up() -> None:
        for _ in range(100):
            assert list(index.concerned(item.key, (item, item))) == [1]

    assert own_seconds(looked_up) < 1


@pytest.mark.parametrize(
    "others",
    [
        [scope(f"elsewhere-{number}") for number in range(3000)],
        [scope(labels=f"app=other-{number}") for number in range(3000)],
        [scope("a", f"app=other-{number}") for number in range(3000)],
        [scope(fields=f"metadata.name=other-{number}") for number in range(3000)],
    ],
    ids=["namespaces", "labels", "labels of one namespace", "names"],
)
def test_an_event_takes_time_only_for_the_affected_views(others: list[Scope]) -> None:
    """3,000 views of other objects once blocked the loop for 32 ms at each event."""
    projection = Projection(filled(10), None)
    concerned, unconcerned = Steps(projection), [Steps(projection, each) for each in others]
    tell(projection.store, "ADDED", Toy("x", "a", version=11, app="web"))
    assert len(concerned.steps) == 1
    assert not any(each.steps for each in unconcerned)
