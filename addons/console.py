"""Shows Kubernetes in mitmproxy's interfaces. Without an interface nothing of this is loaded until one is attached."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mitmproxy import ctx
from mitmproxy.addonmanager import Loader

from addons.link.drills import Drills
from addons.options import Options
from addons.proxy.master import HubMaster
from addons.ui.attached.attachments import Attachments
from addons.ui.masking import visible_by
from addons.ui.running_hub import RunningHub

if TYPE_CHECKING:
    from addons.ui.commands.console_commands import ConsoleCommands, HubBeside
    from addons.ui.flows.interface_flows import InterfaceFlows


class Console:
    """Loads `addons.ui.flows` beside an interface, and sets the interface's first view."""

    name = "edgehub-console"

    def __init__(self, options: Options) -> None:
        self._options = options
        self.drills = Drills()
        self._interface: tuple[InterfaceFlows, ConsoleCommands] | None = None
        self.attachments = Attachments(lambda: options.settings, self.drills)
        """Sends the flows of a hub without an interface to an attached one."""
        self._starts: tuple[Attachments | InterfaceFlows | HubBeside, ...] = (self.attachments,)

    def load(self, loader: Loader) -> None:
        if isinstance(loader.master, HubMaster):
            return
        # The packages of an interface, which no other hub imports.
        from addons.proxy.interface.replaced_addons import change_addons  # noqa: PLC0415 - as above
        from addons.ui.commands.console_commands import ConsoleCommands, HubBeside  # noqa: PLC0415 - as above
        from addons.ui.flows.content_views import register  # noqa: PLC0415 - as above
        from addons.ui.flows.interface import choose_first_view  # noqa: PLC0415 - as above
        from addons.ui.flows.interface_flows import InterfaceFlows  # noqa: PLC0415 - as above
        from kube.schemas.published import messages  # noqa: PLC0415 - as above

        register()
        messages()  # so that showing the first protobuf object reads no file
        change_addons(loader.master)
        self.drills.are_allowed = True
        flows = InterfaceFlows(lambda: visible_by(self._options.settings), self.drills)
        hub = HubBeside()
        self._interface = flows, ConsoleCommands(hub)
        self._starts += (flows, hub)
        ctx.master.addons.add(*self._interface)
        choose_first_view()

    def start(self, hub: RunningHub) -> None:
        """Show the filters' decisions and the hub's own requests, and provide the commands."""
        for part in self._starts:
            part.start(hub)

    def web_address(self) -> str:
        """The URL of mitmproxy's web interface, with its token; "" without that interface."""
        return self._interface[0].web_address() if self._interface is not None else ""

    def done(self) -> None:
        for part in self._interface or ():
            ctx.master.addons.remove(part)
        self._interface = None
