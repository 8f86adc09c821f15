"""Controllers that annotate Endpoints and EndpointSlices, so that hubs of other makes filter them again."""
