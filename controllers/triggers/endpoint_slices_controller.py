"""Annotates EndpointSlices when a Service's topology or a pool's nodes change, so that hubs filter them again."""

from __future__ import annotations

from controllers.runtime.controller import Context
from controllers.triggers.backends import endpoint_slices_resource
from controllers.triggers.update_trigger import UpdateTrigger


class EndpointSlicesTriggerController(UpdateTrigger):
    """OpenYurt's controller of the same name, for EndpointSlices. Key: an EndpointSlice."""

    name = "servicetopology-endpointslices"

    def __init__(self, context: Context) -> None:
        super().__init__(context, endpoint_slices_resource(context.settings.trigger_annotation))
