"""Lists all controllers by name. A new controller is a module and a line here."""

from __future__ import annotations

from collections.abc import Callable

from controllers.autonomy.autonomy_controller import AutonomyController
from controllers.bindings.config_binding_controller import ConfigBindingController
from controllers.bindings.webhook_controller import WebhookController
from controllers.certificates.hub_certificates_controller import HubCertificatesController
from controllers.grids.service_grid_controller import ServiceGridController
from controllers.leaders.hub_leader_config_controller import (
    HubLeaderConfigController,
    HubLeaderRbacController,
)
from controllers.leaders.hub_leader_controller import HubLeaderController
from controllers.pools.node_attributes_controller import NodeAttributesController
from controllers.pools.node_labels_controller import NodeLabelsController
from controllers.pools.node_pool_controller import NodePoolController
from controllers.runtime.controller import Context, Controller
from controllers.triggers.update_trigger import EndpointSlicesTriggerController, EndpointsTriggerController

type Make = Callable[[Context], Controller]

CONTROLLERS: dict[str, Make] = {
    make.name: make
    for make in (
        NodePoolController,
        NodeAttributesController,
        NodeLabelsController,
        HubLeaderController,
        HubLeaderConfigController,
        HubLeaderRbacController,
        AutonomyController,
        HubCertificatesController,
        ServiceGridController,
        ConfigBindingController,
        WebhookController,
        EndpointsTriggerController,
        EndpointSlicesTriggerController,
    )
}
