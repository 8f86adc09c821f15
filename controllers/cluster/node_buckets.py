"""The facts that controllers read from a NodeBucket: some of a pool's nodes (OpenYurt)."""

from __future__ import annotations

from dataclasses import dataclass

from controllers.runtime.informer import WatchedResource
from controllers.runtime.unstructured import metadata, objects, text, texts
from kube.json_type import Json
from kube.requests.request_info import ResourceType

POOL_NAME = "openyurt.io/pool-name"
"""The label whose value is the name of the bucket's pool."""


@dataclass(frozen=True, slots=True)
class NodeBucket:
    """OpenYurt puts a hundred nodes of a pool into each bucket, so that a large pool is several small objects."""

    pool: str
    nodes: tuple[str, ...] = ()


def read_bucket(obj: Json) -> NodeBucket:
    return NodeBucket(
        pool=texts(metadata(obj).get("labels")).get(POOL_NAME, ""),
        nodes=tuple(name for node in objects(obj.get("nodes")) if (name := text(node.get("name")))),
    )


NODEBUCKETS = WatchedResource(
    ResourceType("apps.openyurt.io", "v1alpha1", "nodebuckets"),
    read_bucket,
    indexers={"pool": lambda bucket: [bucket.pool] if bucket.pool else []},
)
