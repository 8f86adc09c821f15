"""The decision about a client and its version, as a table. The store has all versions from 10 on, except a gap from 20
to 30."""

from __future__ import annotations

from typing import Any

import pytest

from kube.store.resumption import ClientState, Resumption, ShownState, judge
from tests.kube.support.toys import Toy, fill, filled, tell

FOLLOW, REPLAY, REPEAT, CORRECT, EXPIRED = (
    Resumption.FOLLOW,
    Resumption.REPLAY,
    Resumption.REPEAT,
    Resumption.CORRECT,
    Resumption.EXPIRED,
)
PLAIN: dict[str, Any] = {
    "seen": 40,
    "is_confirmed": False,
    "oldest": 35,
    "elsewhere": 0,
    "unlike": 0,
    "former": 0,
    "is_filtered": False,
}
FILTERED = PLAIN | {"is_filtered": True}


@pytest.mark.parametrize(
    ("since", "view", "expected"),
    [
        # The view's own events.
        (35, PLAIN, FOLLOW),
        (40, PLAIN, FOLLOW),
        # The client is ahead.
        (50, PLAIN, FOLLOW),
        # Before the view's own events the store's history is used, as far as it reaches.
        (34, PLAIN, REPLAY),
        (12, PLAIN, REPLAY),
        (9, PLAIN, EXPIRED),
        # Within a gap the client's state is unknown, unless the cloud confirmed exactly this state.
        (25, PLAIN, EXPIRED),
        (25, PLAIN | {"oldest": 10}, EXPIRED),
        (25, PLAIN | {"oldest": 10, "is_confirmed": True}, FOLLOW),
        (20, PLAIN | {"oldest": 10}, FOLLOW),
        (30, PLAIN | {"oldest": 10}, FOLLOW),
        # From elsewhere: any state can be corrected, as long as deleted objects can be named.
        (36, PLAIN | {"elsewhere": 36}, CORRECT),
        (36, PLAIN | {"elsewhere": 35}, FOLLOW),
        (25, PLAIN | {"elsewhere": 36}, EXPIRED),
        (9, PLAIN | {"elsewhere": 36}, EXPIRED),
        (50, FILTERED | {"elsewhere": 60}, EXPIRED),
        # The store has not seen changes up to there; the cloud may have confirmed that there were none.
        (40, FILTERED | {"elsewhere": 60, "seen": 39}, EXPIRED),
        (40, FILTERED | {"elsewhere": 60, "seen": 39, "is_confirmed": True}, CORRECT),
        # Versions covered by an earlier process's checkpoint.
        (36, FILTERED | {"elsewhere": 60, "former": 36}, REPEAT),
        (40, FILTERED | {"elsewhere": 60, "former": 36}, REPEAT),
        (36, FILTERED | {"elsewhere": 60, "former": 36, "unlike": 36}, CORRECT),
        (41, FILTERED | {"elsewhere": 60, "former": 36}, EXPIRED),
        (40, FILTERED | {"elsewhere": 60, "former": 25}, CORRECT),
        # Inputs that the view did not follow may have produced another state.
        (34, FILTERED | {"unlike": 33}, REPLAY),
        (34, FILTERED | {"unlike": 34}, CORRECT),
        (36, FILTERED | {"unlike": 36}, FOLLOW),
        # A filtered view before its first client.
        (34, FILTERED | {"oldest": None}, REPLAY),
        (40, FILTERED | {"oldest": None}, REPLAY),
        (50, FILTERED | {"oldest": None}, EXPIRED),
        (9, FILTERED | {"oldest": None}, EXPIRED),
    ],
)
def test_the_version_of_a_client_decides_its_resumption(
    since: int, view: dict[str, Any], expected: Resumption
) -> None:
    store = filled(10, Toy("x", version=4))
    tell(store, "ADDED", Toy("y", version=15))
    store.advance(20)
    fill(store, 30, Toy("x", version=4), Toy("y", version=15))
    tell(store, "MODIFIED", Toy("x", version=38))
    client = ClientState(since, view["is_confirmed"], since <= view["elsewhere"], view["former"])
    given = (view[name] for name in ("seen", "oldest", "unlike", "is_filtered"))
    assert judge(client, ShownState(store.history, *given)) is expected
