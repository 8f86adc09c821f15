"""nodeportisolation: the Service's annotation lists the pools whose nodes open its node ports."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addons.filters.builtin.nodeportisolation import LISTEN, NodePortIsolation, may_listen
from kube.wire.encoding import Encoding
from tests.addons.filters.support.checks import Case, apply, named, reasons_of
from tests.addons.filters.support.samples import Sample, World, service

IN_P1 = World(pool="p1")


def listening(listen: str | None, kind: str = "NodePort") -> Sample:
    return service(annotations=None if listen is None else {LISTEN: listen}, type=kind)


CASES = [
    Case("its pool listens", listening("p1"), "kept", "pool-listens", IN_P1),
    Case("every pool listens", listening("*", "LoadBalancer"), "kept", "pool-listens", IN_P1),
    Case("another pool listens", listening("p2"), "dropped", "pool-isolated", IN_P1),
    Case("every pool but its own", listening("*, -p1", "LoadBalancer"), "dropped", "pool-isolated", IN_P1),
    Case("no pool listens", listening(""), "dropped", "pool-isolated", IN_P1),
    Case("in no pool", listening("p2"), "kept", "no-pool"),
    Case("no annotation", listening(None), "kept", "no-listen-annotation", IN_P1),
    Case("a ClusterIP", listening("p2", "ClusterIP"), "kept", "no-node-port", IN_P1),
]


@pytest.mark.parametrize("case", named(CASES))
def test_the_annotation_decides_whether_pool_p1_listens(encoding: Encoding, case: Case) -> None:
    case.check(NodePortIsolation(), encoding)


def test_the_cases_cover_every_reason() -> None:
    assert reasons_of(CASES) == NodePortIsolation.reasons


@pytest.mark.parametrize(
    ("listen", "expected"),
    [
        ("p1", True),
        (" p2 , p1 ", True),
        ("p2", False),
        ("*", True),
        ("-p1", False),
        ("-p2", False),
        ("-p2,*", True),
        ("*,-p1", False),
        ("-p1,*", False),
        # Of two entries about one pool, or about all, the first counts.
        ("p1,-p1", True),
        ("-p1,p1", False),
        ("-*,*", False),
        ("p1,-*", True),
        ("", False),
        (",,", False),
        ("-", False),
    ],
)
def test_the_annotation_decides_whether_ports_listen_in_p1(listen: str, expected: bool) -> None:
    assert may_listen(listen, "p1") is expected


@given(st.text())
def test_any_annotation_is_parsed_without_an_exception(listen: str) -> None:
    assert may_listen(listen, "p1") in (True, False)


def test_the_pool_is_read_only_if_the_annotation_names_pools(encoding: Encoding) -> None:
    assert apply(NodePortIsolation(), listening(None), IN_P1, encoding).asked == []
    assert apply(NodePortIsolation(), listening("p1"), IN_P1, encoding).asked == [("own_pool",)]


def test_the_note_names_the_entry_that_decides(encoding: Encoding) -> None:
    notes = apply(NodePortIsolation(), listening("p2,p3"), IN_P1, encoding).notes
    assert notes == [("service default/web", "dropped", f"it has {LISTEN}=p2,p3, this node's pool is p1")]
