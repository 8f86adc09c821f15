"""NodeBuckets as they are read, whatever is in them."""

from __future__ import annotations

import pytest

from controllers.cluster.node_buckets import NodeBucket, read_bucket
from kube.json_type import Json

LABELS = {"labels": {"openyurt.io/pool-name": "p"}}


@pytest.mark.parametrize(
    ("obj", "bucket"),
    [
        (
            {"metadata": LABELS, "numNodes": 2, "nodes": [{"name": "a"}, {"name": "b"}]},
            NodeBucket("p", ("a", "b")),
        ),
        ({"metadata": LABELS}, NodeBucket("p")),
        ({"metadata": {}, "nodes": [{"name": "a"}]}, NodeBucket("", ("a",))),
        ({"nodes": [{"name": 5}, "x", {}]}, NodeBucket("")),
    ],
)
def test_a_bucket(obj: Json, bucket: NodeBucket) -> None:
    assert read_bucket(obj) == bucket
