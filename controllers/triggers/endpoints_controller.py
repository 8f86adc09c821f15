"""Annotates Endpoints when a Service's topology or the nodes of a pool change, so that hubs filter them again."""

from __future__ import annotations

from controllers.runtime.controller import Context
from controllers.triggers.backends import endpoints_resource
from controllers.triggers.update_trigger import UpdateTrigger


class EndpointsTriggerController(UpdateTrigger):
    """OpenYurt's controller of the same name, for Endpoints. Key: an Endpoints object."""

    name = "servicetopology-endpoints"

    def __init__(self, context: Context) -> None:
        super().__init__(context, endpoints_resource(context.settings.trigger_annotation))
