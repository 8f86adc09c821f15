"""OpenYurt's kind NodePool, and the API versions in which clusters serve it."""

from kube.requests.request_info import ResourceType

NODEPOOL_TYPE = ResourceType("apps.openyurt.io", "v1beta2", "nodepools")
NODEPOOL_VERSIONS = ("v1beta2", "v1beta1", "v1alpha1")
"""The preferred version first. OpenYurt up to 1.6 serves v1beta1 and v1alpha1, since 1.7 all three. A field that a
version lacks has its default."""
POOL_LABEL = "apps.openyurt.io/nodepool"
"""The label of a Node whose value is the name of its pool."""
