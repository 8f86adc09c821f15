"""Objects of the cluster as controllers read them: nodes, node pools, Services, ServiceGrids. Pure."""
