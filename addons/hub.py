"""The list of the hub's addons, in order, each with the reason for its place."""

from addons.connections import Connections
from addons.console import Console
from addons.egress import Egress
from addons.identity import Identity
from addons.lifecycle import Lifecycle
from addons.options import Options
from addons.resolve import Resolve
from addons.route import Router

_options = Options()
_connections = Connections()
_resolve = Resolve()
_identity = Identity(_options)
_router = Router(_options, _connections)
_egress = Egress(_connections)

addons = [
    _options,  # first: the others read its settings when they are configured
    Console(),  # no request passes through it: its marks join behind all others, and only beside an interface
    _connections,  # before any request: it makes room for many watches on a new connection
    _resolve,  # makes the exchange that all others need, and refuses what cannot be read
    _identity,  # after resolve, which knows the listener; before routing, which asks who calls
    _router,  # after identity; before egress, which sends only what is routed to the cloud
    _egress,  # after routing; nothing that failed before it has a server to go to
    Lifecycle(_options, _resolve, _identity, _router, _egress),  # last: starts the parts when all are loaded
]
