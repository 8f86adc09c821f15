"""The kind NodePool of OpenYurt, and the versions in which clusters serve it."""

from kube.requests.request_info import ResourceType

NODEPOOL_TYPE = ResourceType("apps.openyurt.io", "v1beta2", "nodepools")
NODEPOOL_VERSIONS = ("v1beta2", "v1beta1", "v1alpha1")
"""The preferred version first. OpenYurt up to 1.6 serves v1beta1 and v1alpha1, and since 1.7 all three. Where a version
lacks a field, the field has its default."""
POOL_LABEL = "apps.openyurt.io/nodepool"
"""The label of a Node whose value is the name of the node's pool."""
