"""Facts that several controllers read from objects: nodes, node pools, Services, Jobs, AdmissionReviews. Pure."""
