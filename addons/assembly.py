"""Last in the chain: puts the parts together when mitmproxy runs, and takes them apart when it ends."""

from __future__ import annotations

import asyncio
import datetime
import logging
import tempfile
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import ClassVar
from weakref import WeakSet

from mitmproxy import command, exceptions
from mitmproxy.addonmanager import Loader
from mitmproxy.master import Master

from addons.certificates.serving_certificate import ServingCertificate, own_certificate
from addons.egress import Egress
from addons.filters.chain import build_filters
from addons.filters.filter import Filter
from addons.filters.inputs import HubAddress
from addons.filters.topology import Order
from addons.identity import Identity
from addons.inputs.filter_chain import FilterChain
from addons.inputs.filter_inputs import FilterInputs
from addons.inputs.local_health import LocalHealthSource
from addons.offline.offline_mode import Offline
from addons.options import Options
from addons.proxy.listeners import address_of, closed, open_listeners
from addons.proxy.script_reload import stop_watching
from addons.requests.headers import INTERNAL_HEADER
from addons.requests.route_decision import RouteKind
from addons.resolve import Resolve
from addons.router import Answerer, Router
from addons.rules.events import event_of, send_event
from addons.rules.in_force import RulesInForce
from addons.rules.table import OFF_IN_CLOUD_MODE, Problem, Rules
from addons.settings import Settings, listener_modes, version
from addons.startup import preflight
from addons.startup.state_folder import StateFolder
from addons.ui.admin import Admin
from addons.ui.explain import explain
from addons.ui.link_log import LinkLog
from addons.upstream.health import Cloud, ServerHealth
from addons.upstream.servers import Server, parse_server
from addons.views.origin import Origin
from addons.views.reviews import Reviews
from addons.views.serving import Serving
from addons.views.source import ViewKey
from addons.views.sources import Sources
from kube.http.client import Client
from kube.http.http2 import Http2Session
from kube.http.kubeconfig import NO_CREDENTIALS, Credentials, load_kubeconfig
from kube.requests.request_info import ResourceType
from kube.store.reflector import ListWatch
from kube.wire.encoding import Encoding

logger = logging.getLogger(__name__)

CONFIG_MAPS = ResourceType("", "v1", "configmaps")


class Assembly:
    """Builds sources, origin and admin server from the settings, and starts the addons with them."""

    name = "edgehub-lifecycle"
    _masters: ClassVar[WeakSet[Master]] = WeakSet()
    """Those that have loaded a hub; parts of two hubs in one of them would answer each other's requests."""

    def __init__(
        self, options: Options, resolve: Resolve, identity: Identity, router: Router, egress: Egress
    ) -> None:
        self._options = options
        self._resolve = resolve
        self._identity = identity
        self._router = router
        self._egress = egress
        self._session: Http2Session | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._sources: Sources | None = None
        self._inputs: FilterInputs | None = None
        self._rules: RulesInForce | None = None
        self._origin: Origin | None = None
        self._admin: Admin | None = None
        self._offline: Offline | None = None
        self._folder: StateFolder | None = None
        self._internal = ""

    def load(self, loader: Loader) -> None:
        """Stay as the hub is while its file changes; end in one line where it is loaded into a process again."""
        if loader.master in self._masters:
            logger.critical("addons/hub.py was loaded a second time: the hub ends, start it again")
            raise SystemExit(1)
        self._masters.add(loader.master)
        stop_watching(loader.master)

    def configure(self, updated: set[str]) -> None:
        """An address that is set while the hub runs, in mitmproxy's interface for one, reaches open watches."""
        if self._inputs is not None and updated & {"hub_pod_address", "hub_listen", "hub_tls_port"}:
            self._inputs.move_hub(_hub_address(self._options.settings))

    def running(self) -> None:
        """Start. mitmproxy has loaded every addon, and opens no listener by itself."""
        self._tasks.append(asyncio.create_task(self._open(), name="start"))

    async def _open(self) -> None:
        """Assemble the hub, then open its ports: nobody is answered before the hub can."""
        await asyncio.sleep(0)  # an exit within `running` itself would be logged as a failed task
        try:
            await self._start(self._options.settings)
        except (ValueError, OSError) as error:
            logger.critical("the hub cannot start: %s", self._options.as_typed(str(error)))
            raise SystemExit(1) from None
        except Exception as error:
            logger.critical("the hub cannot start", exc_info=error)
            raise SystemExit(1) from error
        await self._say_ready()

    async def _start(self, settings: Settings) -> None:
        credentials = load_kubeconfig(settings.kubeconfig) if settings.kubeconfig else NO_CREDENTIALS
        servers = settings.servers or (parse_server(credentials.server),)
        await asyncio.to_thread(preflight.check, settings, servers)
        await asyncio.to_thread(self._claim_folder, settings)
        logger.info("%s", start_line(settings, servers))
        modes = listener_modes(settings)
        self._resolve.listen(modes)
        # The hub's own requests need its own listener; no other listener may open before the hub is assembled.
        (internal,) = (spec for spec, name in modes.items() if name == "internal")
        await open_listeners([internal])
        self._internal = "http://{}:{}".format(*address_of(internal))
        if settings.mode == "edge":
            self._offline = Offline(settings.state_dir / "cache")
            await self._offline.open()
        if settings.tls_port:
            self._identity.serve_with(credentials, _serving_certificate(settings))
        cloud = Cloud([ServerHealth(server) for server in servers], settings.server_order)
        try:
            self._build(settings, credentials, cloud)
            self._log_link(cloud)
            await open_listeners(list(modes))
        except OSError as error:
            raise ValueError(preflight.cannot_listen(error, settings)) from error

    def _claim_folder(self, settings: Settings) -> None:
        if settings.mode != "edge" and (settings.tls_cert is not None or not settings.tls_port):
            return  # nothing is kept
        try:
            self._folder = StateFolder(settings.state_dir)
            self._folder.claim()
        except OSError as error:
            logger.error(
                "%s cannot be written (%s): the hub goes on, but nothing that it learns outlives a restart",
                self._options.as_typed(f"hub_state_dir {settings.state_dir}"),
                error.strerror,
            )

    def _log_link(self, cloud: Cloud) -> None:
        waiting = self._offline.waiting if self._offline is not None else lambda: 0
        kept_in = "copies" if self._offline is not None else "memory"
        log = LinkLog(cloud, self._egress.changed, waiting, kept_in)
        self._tasks.append(asyncio.create_task(log.run(), name="log of the link"))

    async def _say_ready(self) -> None:
        assert self._rules is not None
        await self._rules.known()
        logger.info("ready")

    def done(self) -> None:
        for part in (self._inputs, self._offline, self._sources, self._origin, self._admin):
            if part is not None:
                part.close()
        for task in self._tasks:
            task.cancel()
        if self._session is not None:
            self._session.close()
        if self._folder is not None:
            self._folder.release()
        if self._internal:
            logger.info("the hub stops")

    @command.command("edgehub.explain")  # type: ignore[untyped-decorator]  # mitmproxy has no annotations there
    def explain(
        self, component: str, resource: str, namespace: str = "", name: str = "", verb: str = "list"
    ) -> str:
        """Why a component sees an object as it does: the route, the rules, and what each filter decided."""
        if self._rules is None or self._sources is None or self._inputs is None:
            raise exceptions.CommandError("the hub is starting")
        asked = {"component": component, "resource": resource, "namespace": namespace, "name": name}
        return explain(self._rules.rules, self._sources, self._inputs, verb=verb, **asked).text

    def _build(self, settings: Settings, credentials: Credentials, cloud: Cloud) -> None:
        # One session: all that the hub asks of a server for itself, probes too, shares a connection over the link.
        session = self._session = Http2Session()
        relaying = Client(session, self._internal, {INTERNAL_HEADER: self._resolve.secret})
        client = relaying.with_headers({"User-Agent": "edgehub"})

        def client_of(authorization: str) -> Client:
            return client.with_headers({"Authorization": authorization}) if authorization else client

        def is_up() -> bool:
            return cloud.is_up or self._offline is None

        def chain_of(bound: tuple[Filter, ...], resource: str) -> FilterChain | None:
            return FilterChain(bound, inputs, resource) if bound else None

        copies = self._offline.copies if self._offline is not None else None
        sources = self._sources = Sources(client_of, chain_of, settings.idle, copies, is_up)
        inputs = self._inputs = FilterInputs(
            settings.node,
            settings.pool,
            _hub_address(settings),
            lambda list_watch: sources.get("", list_watch),
            sources.inputs_changed,
        )

        def report(problem: Problem) -> None:
            key, now = (settings.namespace, settings.configmap), datetime.datetime.now(datetime.UTC)
            event = event_of(problem, key, settings.node, now)
            self._keep(send_event(client, event, settings.namespace), "event about a bad rule")

        def rules_changed(rules: Rules) -> None:
            sources.rules_changed(lambda key, list_watch: _filters_of(rules, key, list_watch))
            self._router.rules_changed(rules)

        source = sources.sentinel(_rules_list_watch(settings))
        rules = self._rules = RulesInForce(
            source.store, source.why_empty, _filters(settings), _disabled(settings), rules_changed, report
        )
        reviews = Reviews(client_of)
        answerers: dict[RouteKind, Answerer] = {
            RouteKind.VIEW: Serving(sources, reviews, lambda: rules.rules, settings.wait)
        }
        if self._offline is not None:
            self._offline.build(settings, client, relaying, cloud, self._egress.changed, reviews, sources)
            answerers |= self._offline.answerers
        origin = self._origin = Origin()
        backed = self._offline.backed if self._offline is not None else None
        self._router.start(origin, answerers, rules, inputs, backed)
        self._egress.start(cloud, credentials, origin.address, client)
        self._tasks.append(asyncio.create_task(origin.start(), name="origin"))
        self._tasks.append(asyncio.create_task(self._hurry(sources), name="reflectors after an outage"))
        if settings.local_health:
            health = LocalHealthSource(
                settings.local_health, settings.local_health_interval, inputs.local_health
            )
            self._tasks.append(asyncio.create_task(health.run(), name="local health"))
        if settings.admin_port:
            specs = list(listener_modes(settings))
            self._admin = Admin(settings, cloud, sources, inputs, rules, lambda: closed(specs), self._offline)
            self._tasks.append(asyncio.create_task(self._admin.start(), name="admin server"))

    def _keep(self, work: Coroutine[None, None, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.append(task)
        task.add_done_callback(self._tasks.remove)

    async def _hurry(self, sources: Sources) -> None:
        while True:
            await self._egress.changed.wait()
            if self._egress.cloud.is_up:
                sources.hurry()


def _filters_of(rules: Rules, key: ViewKey, list_watch: ListWatch) -> tuple[Filter, ...]:
    return rules.chain(key.component, list_watch.type.group, list_watch.type.resource, key.verb)


def _hub_address(settings: Settings) -> HubAddress:
    return HubAddress(settings.pod_addresses, settings.tls_port)


def _filters(settings: Settings) -> tuple[Filter, ...]:
    order = Order(settings.topology_order)
    return build_filters(order, settings.local_endpoint, health=bool(settings.local_health))


def _disabled(settings: Settings) -> frozenset[str]:
    return settings.disabled_filters | (OFF_IN_CLOUD_MODE if settings.mode == "cloud" else frozenset())


def _rules_list_watch(settings: Settings) -> ListWatch:
    selector = f"metadata.name={settings.configmap}"
    return ListWatch(CONFIG_MAPS, settings.namespace, field_selector=selector, encoding=Encoding.JSON)


def start_line(settings: Settings, servers: Sequence[Server]) -> str:
    """What runs here, for whom: the first line of a log."""
    ports = {"plain": settings.port, "TLS": settings.tls_port, "admin": settings.admin_port}
    opened = ", ".join(f"{name} {port}" for name, port in ports.items() if port)
    return (
        f"edgehub {version()} starts: node {settings.node}, pool {settings.pool or '(as the node is labelled)'}, "
        f"ports on {settings.listen}: {opened or 'none'}, cloud {', '.join(map(str, servers))}, "
        f"state {settings.state_dir if settings.mode == 'edge' else '(none: mode cloud)'}"
    )


def _serving_certificate(settings: Settings) -> ServingCertificate:
    if settings.tls_cert is not None and settings.tls_key is not None:
        return ServingCertificate(settings.tls_cert, settings.tls_key)
    addresses = {"127.0.0.1", "::1", settings.listen, *settings.pod_addresses}
    folder = settings.state_dir / "pki"
    try:
        return own_certificate(folder, addresses)
    except OSError as error:
        temporary = Path(tempfile.mkdtemp(prefix="edgehub-pki-"))
        logger.error(
            "%s cannot be written (%s): the TLS port's CA is %s until a restart", folder, error, temporary
        )
        return own_certificate(temporary, addresses)
