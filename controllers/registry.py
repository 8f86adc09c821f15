"""The controllers, one line each: a new one is its module and a line here."""

from __future__ import annotations

from collections.abc import Callable

from controllers.controller import Context, Controller
from controllers.endpoints import EndpointsTriggerController
from controllers.endpointslices import EndpointSlicesTriggerController
from controllers.hubleader import HubLeaderController
from controllers.hubleaderconfig import HubLeaderConfigController
from controllers.hubleaderrbac import HubLeaderRbacController
from controllers.nodeattributes import NodeAttributesController
from controllers.nodepool import NodePoolController
from controllers.servicegrid import ServiceGridController

type Make = Callable[[Context], Controller]

CONTROLLERS: dict[str, Make] = {
    NodePoolController.name: NodePoolController,
    NodeAttributesController.name: NodeAttributesController,
    HubLeaderController.name: HubLeaderController,
    HubLeaderConfigController.name: HubLeaderConfigController,
    HubLeaderRbacController.name: HubLeaderRbacController,
    ServiceGridController.name: ServiceGridController,
    EndpointsTriggerController.name: EndpointsTriggerController,
    EndpointSlicesTriggerController.name: EndpointSlicesTriggerController,
}
