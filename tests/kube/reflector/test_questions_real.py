"""kube-apiserver returns the same version for a list of each namespace, even of one without the objects."""

from __future__ import annotations

import pytest

from kube.reflector.questions import QUIET_NAMESPACE
from tests.cloud.real import RealCloud
from tests.hub.support.objects import service, services

pytestmark = pytest.mark.real


def test_a_quiet_namespace_gives_the_version_of_the_cloud(real_cloud: RealCloud, namespace: str) -> None:
    admin = real_cloud.admin
    for number in range(3):
        made = admin.post(services(namespace), service(f"s{number}"))
        quiet = admin.get(f"{services(QUIET_NAMESPACE)}?limit=1")
        assert int(quiet["metadata"]["resourceVersion"]) >= int(made["metadata"]["resourceVersion"])
        admin.post(f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": {"generateName": "other-"}})
        everywhere = admin.get("/api/v1/services?limit=1")["metadata"]["resourceVersion"]
        assert admin.get(f"{services(QUIET_NAMESPACE)}?limit=1")["metadata"]["resourceVersion"] == everywhere
