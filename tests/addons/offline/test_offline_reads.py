"""Reads from the node's own sources: which requests a copy can answer, and which it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from addons.offline.offline_reads import OfflineReads, _covers, _scope
from addons.requests.cloud_identity import HUB_IDENTITY, CloudIdentity
from addons.rules.table import parse_rules
from addons.views.sources import Sources
from kube.http.client import Unreachable
from kube.requests.request_info import ResourceType
from kube.store.list_watch import ListWatch
from kube.store.store import Store
from kube.wire.encoding import Encoding
from tests.addons.support.copying import copies_in, settled
from tests.addons.support.offline_parts import Told
from tests.addons.support.samples import fill, read_of, service

PODS = ResourceType("", "v1", "pods")
SERVICES = ResourceType("", "v1", "services")
EVERYWHERE = ListWatch(PODS)
OF_NODE = ListWatch(PODS, field_selector="spec.nodeName=n")
OF_NAMESPACE = ListWatch(PODS, "a")
OF_APP = ListWatch(PODS, label_selector="app=x")
ONE = ListWatch(PODS, "a", field_selector="metadata.name=p")


@pytest.mark.parametrize(
    ("list_watch", "target", "answered"),
    [
        (EVERYWHERE, "/api/v1/pods", True),
        (EVERYWHERE, "/api/v1/namespaces/a/pods", True),
        (EVERYWHERE, "/api/v1/pods?labelSelector=app%3Dx", True),
        (EVERYWHERE, "/api/v1/pods?fieldSelector=metadata.name%3Dp", True),
        # The encoding's schema may not have the field: only the cloud can select by it.
        (EVERYWHERE, "/api/v1/pods?fieldSelector=spec.nodeName%3Dn", False),
        (OF_NODE, "/api/v1/pods?fieldSelector=spec.nodeName%3Dn", True),
        (OF_NODE, "/api/v1/pods", False),
        (OF_NODE, "/api/v1/pods?fieldSelector=spec.nodeName%3Dother", False),
        (OF_NAMESPACE, "/api/v1/namespaces/a/pods", True),
        (OF_NAMESPACE, "/api/v1/namespaces/b/pods", False),
        (OF_NAMESPACE, "/api/v1/pods", False),
        (OF_APP, "/api/v1/pods?labelSelector=app%3Dx", True),
        (OF_APP, "/api/v1/pods?labelSelector=app%3Dx,more", False),
    ],
)
def test_a_list_is_complete_or_not_given(list_watch: ListWatch, target: str, answered: bool) -> None:
    assert (_scope(list_watch, read_of(target)) is not None) is answered


@pytest.mark.parametrize(
    ("list_watch", "name", "known"),
    [
        (EVERYWHERE, "p", True),
        (OF_NAMESPACE, "p", True),
        (ONE, "p", True),
        (ONE, "other", False),
        (OF_NODE, "p", False),
        (OF_APP, "p", False),
        (ListWatch(PODS, "b"), "p", False),
    ],
)
def test_absence_is_known_only_where_the_copy_would_have_the_object(
    list_watch: ListWatch, name: str, known: bool
) -> None:
    assert _covers(list_watch, read_of(f"/api/v1/namespaces/a/pods/{name}")) is known


async def test_a_copy_of_another_identity_is_never_refetched_as_the_hub(tmp_path: Path) -> None:
    """After a revocation a pod saw an object that was created later: its source had been started with no token."""
    pod, credentials = CloudIdentity("pod", "Bearer pod"), []
    store = Store()
    async with copies_in(tmp_path) as copies:
        copy = copies.copy("pod", ListWatch(SERVICES, "default", encoding=Encoding.JSON), store)
        fill(store, [service("web", 3)], 5)
        await settled(copy)
        copy.close()

        def client_of(identity: CloudIdentity) -> Told:
            credentials.append(identity.authorization)
            return Told(Unreachable("gone"))

        sources = Sources(client_of, lambda *_: None, lambda: parse_rules(None), 300, copies, lambda: False)
        reads = OfflineReads(sources, 5)
        read = read_of("/api/v1/namespaces/default/services/web")
        found, hubs = await reads.answer(read, pod), await reads.answer(read, HUB_IDENTITY)
        sources.close()
    assert found is not None
    assert found.status == 200
    assert hubs is None, "the hub has no copy of its own"
    assert set(credentials) == {"Bearer pod"}
