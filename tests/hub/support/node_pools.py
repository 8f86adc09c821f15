"""The kind NodePool for clusters without OpenYurt."""

POOLS = "/apis/apps.openyurt.io/v1beta2/nodepools"
POOL_CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: nodepools.apps.openyurt.io}
spec:
  group: apps.openyurt.io
  scope: Cluster
  names: {kind: NodePool, listKind: NodePoolList, plural: nodepools, singular: nodepool}
  versions:
  - name: v1beta2
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""
"""The smallest definition with which a hub can read NodePools."""
