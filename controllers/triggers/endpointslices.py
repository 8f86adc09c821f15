"""Triggers hubs by an annotation on EndpointSlices when a Service's topology or the nodes of a pool change."""

from __future__ import annotations

from controllers.runtime.controller import Context
from controllers.triggers.backends import slices_kind
from controllers.triggers.update_trigger import UpdateTrigger


class EndpointSlicesTriggerController(UpdateTrigger):
    """Document 000's EndpointSlice controller."""

    name = "servicetopology-endpointslices"

    def __init__(self, context: Context) -> None:
        super().__init__(context, slices_kind(context.settings.trigger_annotation))
