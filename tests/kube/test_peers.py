"""The names that other programs know: a change of one would cut hubs, manager and cluster from each other."""

from __future__ import annotations

from kube.peers import NODE_PREFIX, NODES_GROUP, PEER_ANNOTATION, SERVING_SIGNER


def test_they_are_those_of_kubernetes_and_of_older_hubs() -> None:
    assert (NODE_PREFIX, NODES_GROUP) == ("system:node:", "system:nodes")
    assert PEER_ANNOTATION == "edgehub.io/peer"
    assert SERVING_SIGNER == "kubernetes.io/kubelet-serving"
