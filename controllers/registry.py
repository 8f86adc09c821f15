"""The controllers, one line each: a new one is its module and a line here."""

from __future__ import annotations

from collections.abc import Callable

from controllers.grids.servicegrid import ServiceGridController
from controllers.leaders.hubleader import HubLeaderController
from controllers.leaders.hubleaderconfig import HubLeaderConfigController
from controllers.leaders.hubleaderrbac import HubLeaderRbacController
from controllers.pools.nodeattributes import NodeAttributesController
from controllers.pools.nodepool import NodePoolController
from controllers.runtime.controller import Context, Controller
from controllers.triggers.endpoints import EndpointsTriggerController
from controllers.triggers.endpointslices import EndpointSlicesTriggerController

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
