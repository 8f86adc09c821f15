"""The parts of the hub's addon in the order in which their hooks are called, each with the reason for its place."""

from addons.assembly import Assembly
from addons.connections import Connections
from addons.console import Console
from addons.egress import Egress
from addons.identity import Identity
from addons.link.link import Link
from addons.memory import Memory
from addons.options import Options
from addons.proxy.hub_addon import HubAddon
from addons.proxy.own_listeners import OwnListeners
from addons.resolve import Resolve
from addons.router import Router
from addons.server.limits.open_connections import OpenConnections
from addons.startup.descriptors import raise_descriptor_limit
from addons.traffic import Traffic

_listeners = OwnListeners()
_options = Options()
_open_connections = OpenConnections(raise_descriptor_limit())
_connections = Connections(_open_connections)
_resolve = Resolve()
_identity = Identity(_options)
_link = Link()
_egress = Egress(_open_connections, _link)
_router = Router(_options, _egress.relay)
_console = Console(_options, _link.drills)
_traffic = Traffic()

# Each part, those that must come before it, and why it stands where it does.
order = (
    (_listeners, (), "mitmproxy opens no listener meanwhile, whatever another part does at its start"),
    (_options, (), "the others read its settings when they are configured"),
    (
        _connections,
        (),
        "acts on a connection before its first request: room for many watches, and an end for too many",
    ),
    (_resolve, (), "begins the request context that the others need, and refuses what cannot be read"),
    (_identity, (_resolve,), "decides by the listener, which resolve has noted"),
    (_router, (_resolve, _identity), "decides by what the request asks for, and by who sends it"),
    (
        _egress,
        (_resolve, _router),
        "names the server of a routed request; a request that failed before has no server to go to",
    ),
    (
        _traffic,
        (_egress,),
        "counts the pieces of an answer before egress, which has said how the answer is streamed, sees them",
    ),
    (_console.attachments, (), "shows whoever is attached what the others made of a request"),
    (
        _console,
        (),
        "has no hook of a request: what shows flows beside an interface joins mitmproxy's addons later",
    ),
    (
        Memory(),
        (),
        "has no hook of a request; the assembly behind it opens the listeners",
    ),
    (
        Assembly(_options, _resolve, _identity, _router, _egress, _link, _traffic, _console, _listeners),
        (_options,),
        "hands on the settings that options has just read, and starts the parts when all addons are loaded",
    ),
)

addon = HubAddon([part for part, _, _ in order])
addons = [addon]
