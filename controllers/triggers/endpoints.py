"""Triggers hubs by an annotation on Endpoints when a Service's topology or the nodes of a pool change."""

from __future__ import annotations

from controllers.runtime.controller import Context
from controllers.triggers.backends import endpoints_kind
from controllers.triggers.update_trigger import UpdateTrigger


class EndpointsTriggerController(UpdateTrigger):
    """Document 000's Endpoints controller."""

    name = "servicetopology-endpoints"

    def __init__(self, context: Context) -> None:
        super().__init__(context, endpoints_kind(context.settings.trigger_annotation))
