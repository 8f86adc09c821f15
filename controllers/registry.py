"""The list of all controllers by name. A new controller is a module and a line here."""

from __future__ import annotations

from collections.abc import Callable

from controllers.autonomy import AutonomyController
from controllers.bindings.config_binding_controller import ConfigBindingController
from controllers.bindings.webhook_controller import WebhookController
from controllers.certificates import HubCertificatesController
from controllers.grids import ServiceGridController
from controllers.leaders import HubLeaderConfigController, HubLeaderController, HubLeaderRbacController
from controllers.nodes.node_controller import NodesController
from controllers.pools import NodeAttributesController, NodeLabelsController, NodePoolController
from controllers.runtime.controller import Context, Controller
from controllers.triggers.update_trigger import EndpointSlicesTriggerController, EndpointsTriggerController
from controllers.updates.daemon_pod_updater import DaemonPodUpdater
from controllers.updates.image_puller import ImagePuller

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
        DaemonPodUpdater,
        ImagePuller,
        NodesController,
    )
}
