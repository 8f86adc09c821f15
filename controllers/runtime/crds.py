"""Creates the CRDs that the cluster lacks when the manager starts, as SuperEdge's controller does for its own."""

from __future__ import annotations

import logging
from pathlib import Path

import yaml

from controllers.runtime.informer import Informers
from controllers.runtime.unstructured import mapping
from controllers.runtime.write_client import WriteClient
from kube.errors import StatusError
from kube.http.client import Unreachable
from kube.json_type import Json
from kube.requests.request_info import ResourceType

CRDS = ResourceType("apiextensions.k8s.io", "v1", "customresourcedefinitions")
MANIFESTS = Path(__file__).parents[1] / "manifests"

logger = logging.getLogger(__name__)


def manifest(group_resource: str) -> Json | None:
    """The shipped CustomResourceDefinition of a resource, None for one that is not ours."""
    for name in ("nodepools", "nodelabels", "servicegrids", "configbindings"):
        for document in yaml.safe_load_all((MANIFESTS / f"{name}.yaml").read_text()):
            crd = mapping(document)
            if mapping(crd.get("metadata")).get("name") == group_resource:
                return crd
    return None


async def create_missing_crds(api: WriteClient, informers: Informers, tried: set[str]) -> None:
    """Create the CRD of each kind that the API server does not know, once: `tried` remembers the names.

    An existing CRD is never touched, whoever made it. A manager without the right to create CRDs goes on: an
    administrator applies the manifests then.
    """
    for informer in informers:
        name = informer.resource.type.group_resource
        crd = manifest(name) if informer.refused else None
        if crd is None:
            continue
        if name not in tried:
            tried.add(name)
            try:
                await api.create(CRDS, crd)
                logger.info("created the kind %s", name)
            except (StatusError, Unreachable) as error:
                logger.warning("the kind %s is missing and was not created: %s", name, error)
        informer.retry_now()
