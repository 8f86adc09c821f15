"""Objects of the API as JSON."""

from __future__ import annotations

from typing import Any

from kube.json_type import Json

API_VERSIONS = {
    "CertificateSigningRequest": "certificates.k8s.io/v1",
    "CustomResourceDefinition": "apiextensions.k8s.io/v1",
    "DaemonSet": "apps/v1",
    "Deployment": "apps/v1",
    "EndpointSlice": "discovery.k8s.io/v1",
    "Lease": "coordination.k8s.io/v1",
    "NodePool": "apps.openyurt.io/v1beta2",
    "TokenRequest": "authentication.k8s.io/v1",
}
"""API versions other than v1, by kind."""
METADATA = frozenset({"annotations", "finalizers", "generation", "labels", "ownerReferences", "uid"})


def metadata(name: str, namespace: str = "", version: int = 0, **more: Any) -> Json:
    """Return metadata; empty fields are left out."""
    found = {"namespace": namespace, "resourceVersion": str(version or ""), **more}
    return {"name": name, **{key: value for key, value in found.items() if value}}


def obj(kind: str, name: str, namespace: str = "", version: int = 0, **fields: Any) -> Json:
    """Return an object; fields of METADATA become metadata."""
    meta = metadata(name, namespace, version, **{key: fields.pop(key) for key in METADATA & fields.keys()})
    return {"apiVersion": API_VERSIONS.get(kind, "v1"), "kind": kind, "metadata": meta, **fields}
