"""Controllers that touch Endpoints and slices so that other hubs look at them again."""
