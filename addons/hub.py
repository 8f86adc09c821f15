"""The parts of the hub's addon, in the order in which their hooks are called, each with the reason for its position."""

from addons.assembly import Assembly, RequestParts
from addons.connections import Connections
from addons.console import Console
from addons.egress import Egress
from addons.identity import Identity
from addons.memory import Memory
from addons.options import Options
from addons.proxy.hub_addon import HubAddon, HubPart
from addons.proxy.own_listeners import OwnListeners
from addons.resolve import Resolve
from addons.router import Router
from addons.server.limits.open_connections import OpenConnections
from addons.startup.descriptors import raise_descriptor_limit
from addons.traffic import Traffic
from addons.ui.hub_records import Records


def order() -> tuple[tuple[HubPart, tuple[HubPart, ...], str], ...]:
    """Build the parts, and raise the process limits that they need.

    Each part lists its predecessors, with the reason.
    """
    listeners = OwnListeners()
    options = Options()
    open_connections = OpenConnections(raise_descriptor_limit())
    connections = Connections(open_connections)
    resolve = Resolve()
    identity = Identity(options)
    egress = Egress(open_connections)
    router = Router(egress.relay)
    console = Console(options)
    records = Records()
    traffic = Traffic(records)
    return (
        (listeners, (), "mitmproxy opens no listener meanwhile, whatever another part does at its start"),
        (options, (), "the others read its settings when they are configured"),
        (
            connections,
            (),
            "acts on a connection before its first request: room for many watches, and an end for too many",
        ),
        (resolve, (), "begins the request context that the others need, and refuses what cannot be read"),
        (identity, (resolve,), "decides by the listener, which resolve has noted"),
        (router, (resolve, identity), "decides by what the request asks for, and by who sends it"),
        (
            egress,
            (resolve, router),
            "names the server of a routed request; a request that failed before has no server to go to",
        ),
        (
            traffic,
            (egress,),
            "counts the pieces of an answer before egress, which has said how the answer is streamed, sees them",
        ),
        (console.attachments, (), "shows an attached process what the others did with a request"),
        (
            console,
            (),
            "has no hook of a request: what shows flows beside an interface joins mitmproxy's addons later",
        ),
        (
            Memory(),
            (),
            "has no hook of a request; the assembly behind it opens the listeners",
        ),
        (
            Assembly(options, listeners, RequestParts(resolve, identity, router, egress), records, console),
            (options,),
            "passes on the settings that options has just read, and starts the parts when all addons are loaded",
        ),
    )


addon = HubAddon(lambda: [part for part, _, _ in order()])
"""Empty until mitmproxy loads it: to import this module makes no part."""
addons = [addon]
