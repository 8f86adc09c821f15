"""Pages and their continue tokens; the contract tests show what both clouds do."""

from __future__ import annotations

import base64

import pytest

from kube.errors import StatusError
from kube.requests.request_info import ListOptions
from tests.cloud.scriptable.lists import Page, read_list
from tests.cloud.scriptable.resources import ResourceTable
from tests.cloud.scriptable.selection import select
from tests.cloud.scriptable.storage import Storage

PODS = ResourceTable().named("pods")


@pytest.fixture
def storage() -> Storage:
    """Pods a/p … d/p, at versions 101 … 104."""
    storage = Storage()
    for namespace in "abcd":
        storage.write("pods", (namespace, "p"), {"metadata": {"name": "p", "namespace": namespace}})
    return storage


def read(storage: Storage, options: ListOptions) -> Page:
    return read_list(storage, select(PODS, "", options), options)


def places(page: Page) -> str:
    return "".join(stored.value["metadata"]["namespace"] for stored in page.items)


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5])
def test_pages_together_are_the_list(storage: Storage, limit: int) -> None:
    together, token = "", ""
    for _ in range(5):
        page = read(storage, ListOptions(limit=limit, continue_token=token))
        assert len(page.items) <= limit
        together, token = together + places(page), page.continue_token
        if not token:
            break
        assert page.remaining == 4 - len(together)
    assert together == "abcd"


def test_a_page_goes_on_after_a_deleted_object(storage: Storage) -> None:
    first = read(storage, ListOptions(limit=2))
    storage.remove("pods", ("b", "p"))
    storage.remove("pods", ("c", "p"))
    second = read(storage, ListOptions(continue_token=first.continue_token))
    assert (places(second), second.version) == ("cd", 104)


def test_a_list_at_an_old_version(storage: Storage) -> None:
    options = ListOptions(resource_version="102", resource_version_match="Exact")
    assert (places(read(storage, options)), read(storage, options).version) == ("ab", 102)


@pytest.mark.parametrize(
    "token",
    [
        "%",
        base64.urlsafe_b64encode(b"[]").decode(),
        base64.urlsafe_b64encode(b'{"v":"meta.k8s.io/v1"}').decode(),
        base64.urlsafe_b64encode(b'{"v":"other","rv":1,"start":"a"}').decode(),
        base64.urlsafe_b64encode(b'{"v":"meta.k8s.io/v1","rv":"x","start":"a"}').decode(),
    ],
)
def test_tokens_that_are_none(storage: Storage, token: str) -> None:
    with pytest.raises(StatusError, match="invalid continue token") as refused:
        read(storage, ListOptions(continue_token=token))
    assert refused.value.code == 400


def test_a_token_of_a_compacted_version_is_expired(storage: Storage) -> None:
    page = read(storage, ListOptions(limit=1))
    storage.write("pods", ("e", "p"), {"metadata": {"name": "p", "namespace": "e"}})
    storage.compact()
    with pytest.raises(StatusError, match="The provided continue parameter is too old") as refused:
        read(storage, ListOptions(limit=1, continue_token=page.continue_token))
    assert (refused.value.code, refused.value.reason) == (410, "Expired")
