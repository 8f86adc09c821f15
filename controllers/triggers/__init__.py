"""Controllers that annotate Endpoints and EndpointSlices, so that OpenYurt's hubs filter them again."""
