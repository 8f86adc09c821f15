"""Shows Kubernetes in mitmproxy's interfaces. Without an interface nothing of that is loaded until one is attached."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mitmproxy import ctx, http
from mitmproxy.addonmanager import Loader

from addons.link.drills import Drills
from addons.link.request_records import RequestRecords
from addons.options import Options
from addons.proxy.master import HubMaster
from addons.ui.attached.attachments import Attachments

if TYPE_CHECKING:
    from addons.ui.commands.console_commands import ConsoleCommands
    from addons.ui.flows.filtered import FilteringParts
    from addons.ui.flows.flows import Flows
    from addons.ui.masking import Visible
    from addons.ui.reports.running_hub import RunningHub


class Console:
    """Loads `addons.ui.flows` beside an interface, and sets what mitmproxy shows there first."""

    name = "edgehub-console"

    def __init__(self, options: Options, drills: Drills) -> None:
        self._options = options
        self._drills = drills
        self._flows: Flows | None = None
        self._commands: ConsoleCommands | None = None
        self.attachments: Attachments | None = None
        """Shows the flows of a hub without an interface to whoever is attached."""

    def load(self, loader: Loader) -> None:
        if isinstance(loader.master, HubMaster):
            self.attachments = Attachments(
                self._visible, self._drills, lambda: self._options.settings.allow_hold
            )
            return
        # The packages of an interface, which no other hub imports.
        from addons.proxy.interface.flow_replay import replay_through_the_hub  # noqa: PLC0415 - as said above
        from addons.proxy.interface.har_comments import comment_hars  # noqa: PLC0415 - as said above
        from addons.proxy.interface.script_reload import stop_watching  # noqa: PLC0415 - as said above
        from addons.ui.commands.console_commands import ConsoleCommands  # noqa: PLC0415 - as said above
        from addons.ui.flows.content_views import register  # noqa: PLC0415 - as said above
        from addons.ui.flows.flows import Flows  # noqa: PLC0415 - as said above
        from addons.ui.flows.web_address import choose_first_view  # noqa: PLC0415 - as said above
        from kube.schemas.message_table import messages  # noqa: PLC0415 - as said above

        register()
        messages()  # what shows the first object of protobuf has no file to read then
        replay_through_the_hub(loader.master)
        comment_hars(loader.master)
        stop_watching(loader.master)
        self._drills.are_allowed = True
        self._flows = Flows(self._visible, self._drills)
        self._commands = ConsoleCommands()
        ctx.master.addons.add(self._flows, self._commands)
        choose_first_view()

    def _visible(self) -> Visible:
        from addons.ui.masking import Visible  # noqa: PLC0415 - beside an interface alone

        settings = self._options.settings
        return Visible(settings.show_secrets, settings.show_managed_fields)

    def start(self, parts: FilteringParts, records: RequestRecords) -> None:
        """Take the parts of the hub that know what filters did, and what the hub itself asks."""
        if self.attachments is not None:
            self.attachments.start(parts)
        if self._flows is not None:
            self._flows.start(parts)
            if self._options.settings.show_own_requests:
                self._flows.show_own(records)

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        if self.attachments is not None:
            self.attachments.requestheaders(flow)

    async def request(self, flow: http.HTTPFlow) -> None:
        if self.attachments is not None:
            await self.attachments.request(flow)

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        if self.attachments is not None:
            self.attachments.responseheaders(flow)

    async def response(self, flow: http.HTTPFlow) -> None:
        if self.attachments is not None:
            await self.attachments.response(flow)

    def error(self, flow: http.HTTPFlow) -> None:
        if self.attachments is not None:
            self.attachments.ended(flow)

    def show(self, hub: RunningHub) -> None:
        """Answer a person's commands of this hub."""
        if self._commands is not None:
            self._commands.start(hub)

    def web_address(self) -> str:
        """The URL of mitmproxy's web interface, with its token; "" where there is none."""
        return self._flows.web_address() if self._flows is not None else ""

    def done(self) -> None:
        if self._flows is not None:
            ctx.master.addons.remove(self._flows)
            self._flows = None
        if self._commands is not None:
            ctx.master.addons.remove(self._commands)
            self._commands = None
