"""Which form of a copy a client gets, and lists that are put together of copies that each hold a part."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import cast

import orjson
import pytest

from addons.offline.people.forms import first_form, partial_list
from addons.views.source import Source
from kube.json_type import Json
from kube.reflector.list_watch import ListWatch
from kube.requests.request_info import ResourceType
from kube.store.store import Store
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from tests.addons.support.samples import fill, metadata, read_of
from tests.kube.support import recorded

JSON, PROTOBUF = Encoding.JSON, Encoding.PROTOBUF
TABLE = f"{JSON};as=Table;v=v1;g=meta.k8s.io"
METADATA = f"{JSON};as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
PODS = ListWatch(ResourceType("", "v1", "pods"))
OF_PROTOBUF = recorded.obj("pods.single", Encoding.PROTOBUF)


def pod(name: str, version: int, namespace: str = "a", phase: str = "Running") -> Json:
    labels = {"app": name}
    about = metadata(name, namespace, version, labels=labels)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": about, "status": {"phase": phase}}


def store_of(version: int, *pods: Json) -> Store:
    store = Store()
    fill(store, pods, version, kind="Pod")
    return store


async def listed(target: str, *stores: Store, accept: str = "application/json") -> list[str] | None:
    """The names in a list, each with its version."""

    async def sources() -> AsyncIterator[tuple[ListWatch, Source]]:
        for store in stores:
            yield PODS, cast(Source, SimpleNamespace(store=store))

    listing = await partial_list(sources(), read_of(target, accept))
    if listing is None:
        return None
    body = orjson.loads(bytes(listing.body(listing.formed(listing.items))))
    return [f"{each['metadata']['name']} {each['metadata']['resourceVersion']}" for each in body["items"]]


async def test_each_object_is_as_the_newest_copy_has_it() -> None:
    newer, older = store_of(9, pod("p", 8)), store_of(5, pod("p", 4), pod("q", 3))
    assert await listed("/api/v1/pods", newer, older) == ["p 8", "q 3"]


async def test_copies_of_both_encodings_make_one_list() -> None:
    protobuf = Store()
    protobuf.replace(codec_for(Encoding.PROTOBUF), "v1", "Pod", 9, [OF_PROTOBUF.encode()])
    found = await listed("/api/v1/pods", protobuf, store_of(5, pod("zzz", 4, "zzz")))
    assert found == [f"{OF_PROTOBUF.name} {OF_PROTOBUF.version}", "zzz 4"]


@pytest.mark.parametrize(
    ("target", "names"),
    [
        ("/api/v1/pods", ["p 3", "q 4", "p 5"]),
        ("/api/v1/namespaces/b/pods", ["p 5"]),
        ("/api/v1/pods?labelSelector=app%3Dq", ["q 4"]),
        ("/api/v1/pods?fieldSelector=status.phase%3DPending", ["q 4"]),
        ("/api/v1/pods?fieldSelector=status.phase!%3DPending,spec.nodeName%3D", ["p 3", "p 5"]),
    ],
)
async def test_what_was_asked_for_is_selected(target: str, names: list[str]) -> None:
    store = store_of(9, pod("p", 3), pod("q", 4, phase="Pending"), pod("p", 5, "b"))
    assert await listed(target, store) == names


async def test_without_a_copy_in_a_form_for_the_client_there_is_no_list() -> None:
    assert await listed("/api/v1/pods") is None
    assert await listed("/api/v1/pods", store_of(9), accept="application/vnd.kubernetes.protobuf") is None


@pytest.mark.parametrize(
    ("kept", "kind", "accept", "form"),
    [
        (PROTOBUF, "Service", PROTOBUF, "whole"),
        (PROTOBUF, "Service", JSON, "whole as JSON"),
        (PROTOBUF, "Service", METADATA, "metadata as JSON"),
        (PROTOBUF, "Service", f"{TABLE},{JSON}", "Table v1 with Metadata"),
        (PROTOBUF, "Service", f"{PROTOBUF},{JSON}", "whole"),
        (PROTOBUF, "Odd", f"{TABLE},{JSON}", None),
        (JSON, "Odd", f"{TABLE},{JSON}", "Table v1 with Metadata"),
        (JSON, "Service", f"{PROTOBUF},{JSON}", "whole"),
        (JSON, "Service", PROTOBUF, None),
    ],
)
def test_the_first_choice_that_can_be_made(kept: Encoding, kind: str, accept: str, form: str | None) -> None:
    store, read = Store(), read_of("/api/v1/services", accept)
    raws = [recorded.single("services.single", kept)[2]] if kind == "Service" else []
    store.replace(codec_for(kept), "v1", kind, 9, raws)
    found = first_form(read.accepted, read, store)
    assert (found.name if found is not None else None) == form
