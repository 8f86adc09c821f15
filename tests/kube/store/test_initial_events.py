"""The first events of a watch, especially for a client with objects that the view does not know."""

from __future__ import annotations

import orjson
import pytest

from kube.errors import StatusError
from kube.json_type import Json
from kube.store.initial_events import InitialEvents, correction
from kube.store.listing import FULL_OBJECTS, METADATA, Form
from kube.store.made_forms import TABLES
from kube.store.projection import Evaluation, InputKey, Projection
from kube.store.scope import Scope
from kube.store.store import Item, Store
from kube.store.view import View
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from tests.kube.support.toys import Seen, Toy, ToyChain, events_of, filled, read, scope, short, tell

INPUTS: dict[InputKey, str] = {("p", "hide"): "drop", ("p", "change"): "10.9.9.9"}
HIDDEN, CHANGED, PLAIN = (
    Toy("hidden", version=4, reads="hide"),
    Toy("changed", version=5, reads="change"),
    Toy("plain", version=6),
)


def write(event_type: str, item: Item) -> bytes:
    return f"{event_type} {item.key[1]};".encode()


def test_initial_events_are_in_order() -> None:
    items = {item.key[1]: item for item in filled(10, HIDDEN, PLAIN)}
    beginning = InitialEvents([items["plain"]], [b"missed;"], [items["hidden"]])
    assert b"".join(beginning.frames(write)) == b"missed;DELETED hidden;ADDED plain;"


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (scope(), {"DELETED hidden", "ADDED changed", "ADDED plain", "DELETED other"}),
        (scope("a"), {"DELETED hidden", "ADDED changed", "ADDED plain"}),
        (scope(labels="app=x"), {"DELETED hidden", "DELETED changed", "DELETED plain", "DELETED other"}),
        (scope(fields="metadata.name=plain"), {"ADDED plain"}),
        (scope(fields="metadata.namespace=b"), {"DELETED other"}),
    ],
)
def test_a_correction_deletes_objects_that_the_client_may_have_and_the_view_hides(
    where: Scope, expected: set[str]
) -> None:
    other = Toy("other", namespace="b", version=7, reads="hide")
    projection = Projection(filled(10, HIDDEN, CHANGED, PLAIN, other), ToyChain("p", INPUTS))
    events = b"".join(correction(projection, where, 10).frames(write)).decode().split(";")
    assert {each for each in events if each} == expected


@pytest.mark.parametrize(
    "form", [FULL_OBJECTS, METADATA["v1"], TABLES["v1", "Object"]], ids=["whole", "metadata", "table"]
)
def test_a_hidden_object_is_deleted_by_name_only(encoding: Encoding, form: Form) -> None:
    """A filter that hides Secrets once sent them completely to each client that connected after a restart."""
    store = Store()
    raws = [
        Toy(name, version=at, app="told", reads="hide").raw(encoding) for name, at in (("s", 4), ("gone", 5))
    ]
    store.replace(codec_for(encoding), "v1", "Secret", 10, raws)
    store.apply("DELETED", Toy("gone", version=11, app="told", reads="hide").raw(encoding))
    store.apply("ADDED", Toy("young", version=12, app="told", reads="hide").raw(encoding))
    view = View(Projection(store, ToyChain("p", INPUTS)), scope(), form, lambda: 12)
    frames = list(correction(view.projection, scope(), 10).frames(view.frame))
    assert len(frames) == 2, "nobody has seen the young one"
    assert not [each for each in frames if b"told" in each or b"10.0.0.1" in each]
    assert [(b"gone" in each, b"11" in each) for each in frames] == [(False, False), (True, True)]


SERVICE: Json = {
    "spec": {
        "type": "NodePort",
        "clusterIP": "10.0.0.1",
        "clusterIPs": ["10.0.0.1", "fd00::1"],
        "ipFamilies": ["IPv4", "IPv6"],
        "ports": [{"name": "dns", "protocol": "UDP", "port": 53, "nodePort": 30053}],
        "selector": {"app": "told"},
    },
    "metadata": {"labels": {"app": "told"}, "annotations": {"told": "told"}},
}
SLICE: Json = {
    "addressType": "IPv4",
    "endpoints": [{"addresses": ["10.1.0.1"], "nodeName": "told"}],
    "ports": [{"name": "told", "port": 53}],
    "metadata": {"labels": {"kubernetes.io/service-name": "s", "app": "told"}},
}
ENDPOINTS: Json = {"subsets": [{"addresses": [{"ip": "10.1.0.1"}]}], "metadata": {"labels": {"app": "told"}}}


@pytest.mark.parametrize(
    ("kind", "content", "left"),
    [
        (
            "Service",
            SERVICE,
            {
                "spec": {
                    **{
                        name: SERVICE["spec"][name]
                        for name in ("type", "clusterIP", "clusterIPs", "ipFamilies")
                    },
                    "ports": [{"name": "dns", "protocol": "UDP", "port": 53}],
                }
            },
        ),
        ("EndpointSlice", SLICE, {"addressType": "IPv4", "endpoints": []}),
        ("Endpoints", ENDPOINTS, {}),
        ("Secret", {"data": {"told": "dG9sZA=="}}, {}),
    ],
)
def test_a_hidden_objects_deletion_has_only_the_fields_by_which_clients_find_it(
    kind: str, content: Json, left: Json
) -> None:
    """kube-proxy reads from the deletion event which rules to remove, kube-state-metrics which uid. Python's client
    checks required fields."""

    class Hiding:
        """A chain that hides everything."""

        def evaluate(self, _item: Item) -> Evaluation:
            return Evaluation(None, frozenset())

        def is_same(self, _before: Item, _after: Item) -> bool:
            return False

    labels = {"labels": {"kubernetes.io/service-name": "s"}} if kind == "EndpointSlice" else {}
    named = {"name": "x", "namespace": "a", "resourceVersion": "4", "uid": "u"}
    full = {"kind": kind, "apiVersion": "v1", **content, "metadata": {**content.get("metadata", {}), **named}}
    store = Store()
    store.replace(codec_for(Encoding.JSON), "v1", kind, 10, [orjson.dumps(full)])
    (hidden,) = correction(Projection(store, Hiding()), scope(), 10).hidden
    assert orjson.loads(hidden.raw) == {
        "kind": kind,
        "apiVersion": "v1",
        "metadata": {**named, **labels},
        **left,
    }


def test_a_hidden_objects_deletion_is_equal_in_both_encodings(encoding: Encoding) -> None:
    projection = Projection(filled(10, HIDDEN, encoding=encoding), ToyChain("p", INPUTS))
    (hidden,) = correction(projection, scope(), 10).hidden
    assert read(encoding, "v1", "Service", hidden.raw) == (HIDDEN.key, Seen(4, "", "", HIDDEN.address))


def view_at(elsewhere: int, *toys: Toy) -> View:
    projection = Projection(filled(10, *toys), ToyChain("p", INPUTS))
    return View(projection, scope(), Form(metadata_only=False), lambda: elsewhere)


async def test_a_client_with_a_version_from_elsewhere_is_corrected() -> None:
    """A relayed list had all three objects. The view once accepted the watch, and the client retained the hidden
    one."""
    view = view_at(12, HIDDEN, CHANGED, PLAIN)
    view.listing()
    tell(view.projection.store, "MODIFIED", Toy("plain", version=11))
    watcher = view.watch(10, bookmarks=True)
    assert [short(each) for each in events_of(view, watcher.initial_events())] == [
        ("DELETED", "hidden", 4),
        ("ADDED", "changed", 5),
        ("ADDED", "plain", 11),
        ("BOOKMARK", "", 11),
    ]


async def test_a_client_from_elsewhere_gets_deletions_of_objects_that_the_view_hid() -> None:
    """The view has no event of an object that it hid until its deletion; the store's history has one."""
    view = view_at(12, HIDDEN, PLAIN)
    view.listing()
    tell(view.projection.store, "DELETED", Toy("hidden", version=11, reads="hide"))
    first = events_of(view, view.watch(10, bookmarks=True).initial_events())
    assert ("DELETED", "hidden", 11) in [short(each) for each in first]
    with pytest.raises(StatusError, match="too old resource version"):
        view.watch(12, bookmarks=True)  # the client may have objects that the view has not reached


async def test_a_listed_version_can_always_be_watched() -> None:
    """This holds even if all versions may be from elsewhere, and nothing is written any more."""
    view = view_at(10**9, HIDDEN, PLAIN)
    for _ in range(3):
        view.watch(view.listing().meta.version, bookmarks=True).end()


async def test_versions_newer_than_any_from_elsewhere_resume_by_the_history() -> None:
    view = view_at(10, HIDDEN, PLAIN)
    view.listing()
    tell(view.projection.store, "ADDED", Toy("new", version=11))
    watcher = view.watch(11, bookmarks=True)
    assert list(watcher.initial_events()) == []


async def test_a_version_that_the_cloud_confirmed_is_corrected_too() -> None:
    """A relayed list is newer than the view, which no event has brought to that version."""
    view = view_at(20, HIDDEN, PLAIN)
    watcher = view.watch(16, 16, bookmarks=True)
    assert [short(each) for each in events_of(view, watcher.initial_events())][-1] == ("BOOKMARK", "", 16)
