"""The last addon: checks the settings, starts the parts, opens the listeners when the hub can answer, stops it all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import NamedTuple

from addons.certificates.node_certificate import IdentifiedSession, NodeCertificate
from addons.certificates.requested_certificate import serving_certificate_of
from addons.certificates.serving_certificate import Certificate, ServingCertificate
from addons.certificates.tls_port_certificate import FILE as CLUSTER_FILE
from addons.certificates.tls_port_certificate import OwnCertificate, TlsPortCertificate
from addons.console import Console
from addons.egress import Egress
from addons.identity import Identity
from addons.link.health import Cloud
from addons.link.identities.kubelet import KubeletAccess
from addons.link.identities.plugin_credentials import PluginCredentials
from addons.link.own_requests import OwnRequests
from addons.link.request_records import RequestRecords
from addons.link.servers import parse_server
from addons.offline.offline_mode import Offline
from addons.options import Options
from addons.parts import (
    Parts,
    certified_addresses,
    end_delays,
    filter_modules,
    hub_address,
    make_parts,
    router_parts,
    served_addresses,
)
from addons.pool.pool import Pool
from addons.pool.pool_assembly import announce_no_port, join_pool
from addons.proxy.listener_mode import listener_specs, peer_spec
from addons.proxy.listeners import stop_accepting
from addons.proxy.own_listeners import OwnListeners
from addons.requests.caller import CredentialSource
from addons.requests.clients import Clients
from addons.resolve import Resolve
from addons.router import Router
from addons.rules.filter_modules import FilterModules
from addons.server.accept import close_client
from addons.settings import Settings
from addons.startup import handed_sockets, pod_interface, preflight, service_manager
from addons.startup.folder_owner import FolderOwner
from addons.startup.own_node import why_unfit
from addons.startup.state_folder import StateFolder
from addons.telemetry import metrics
from addons.telemetry.background import background
from addons.telemetry.log import LogTail, hold_libraries_back, print_line_by_line
from addons.traffic import Traffic
from addons.ui.admin_port import AdminPort
from addons.ui.link_log import LinkLog, LinkState
from addons.ui.live.observed_request import tell_log_and_terminal
from addons.ui.live.own_reports import tell_fleet, tell_link_budget
from addons.ui.running_hub import RunningHub
from addons.views.observed_events import observed_events
from kube.http.kubeconfig import Credentials
from kube.http.session import Session

logger = logging.getLogger(__name__)


class RequestParts(NamedTuple):
    """The parts that each request passes, in their order."""

    resolve: Resolve
    identity: Identity
    router: Router
    egress: Egress


class Assembly:
    """Builds sources and admin server from the settings, and starts the addons with them."""

    name = "edgehub-assembly"

    def __init__(
        self,
        options: Options,
        listeners: OwnListeners,
        request: RequestParts,
        traffic: Traffic,
        console: Console,
    ) -> None:
        self._options = options
        self._request = request
        self._link = request.egress.link
        self._traffic = traffic
        self._log = LogTail()
        self._records = RequestRecords()
        self._console = console
        self._listeners = listeners
        self._tasks: list[asyncio.Task[None]] = []
        self._parts: Parts | None = None
        self._admin: AdminPort | None = None
        self._offline: Offline | None = None
        self._pool: Pool | None = None
        self._folder: StateFolder | None = None
        self._certificate: OwnCertificate | None = None
        self._local: Callable[[], Certificate] | None = None
        """The TLS port's certificate where the cluster has signed none for it."""
        self._shown: TlsPortCertificate | None = None
        self._node_certificate: NodeCertificate | None = None

    def configure(self, updated: set[str]) -> None:
        """An address that is set while the hub runs, in mitmproxy's interface for one, reaches open watches."""
        if self._parts is not None and "hub_pod_address" in updated:
            self._point_pods()
            if self._certificate is not None:
                self._certificate.move(served_addresses(self._options.settings))

    def running(self) -> None:
        """Start. mitmproxy has loaded every addon, and opens no listener by itself."""
        self._tasks.append(asyncio.create_task(self._open(), name="start"))

    async def _open(self) -> None:
        """Assemble the hub, then open its ports, so that no request comes before the hub can answer."""
        await asyncio.sleep(0)  # an exit within `running` itself would be logged as a failed task
        try:
            parts = await self._start(self._options.settings)
        except (ValueError, OSError) as error:
            logger.critical("the hub cannot start: %s", self._options.as_typed(str(error)))
            raise SystemExit(1) from None
        except Exception as error:
            logger.critical("the hub cannot start", exc_info=error)
            raise SystemExit(1) from error
        await self._say_ready(parts)

    async def _start(self, settings: Settings) -> Parts:
        self._log.attach()
        hold_libraries_back()
        print_line_by_line()
        handed_sockets.handed.adopt_sockets()
        credentials = await self._credentials(settings)
        servers = settings.servers or (parse_server(credentials.server),)
        await asyncio.to_thread(preflight.check, settings, servers)
        modules = await asyncio.to_thread(filter_modules, settings)
        await asyncio.to_thread(
            self._claim_folder, settings, FolderOwner.of(settings.node, credentials, servers)
        )
        if settings.pod_address.makes:
            await self._make_pod_addresses(settings.pod_addresses)
        logger.info("%s", preflight.start_line(settings, servers))
        if warning := preflight.doubt(settings, credentials):
            logger.warning("%s", self._options.as_typed(warning))
        self._request.resolve.allow(settings.allowed_hosts)
        # Each waits for the disk, at a first start, while the other computes.
        await asyncio.gather(self._open_copies(settings), self._make_certificate(settings))
        times = settings.probe_interval, settings.probe_timeout
        cloud = Cloud.by(servers, settings.uplinks, settings.server_order, *times)
        try:
            parts = self._build(settings, credentials, cloud, self._log_link(cloud), modules)
            await self._listeners.open(listener_specs(settings))
            return parts
        except OSError as error:
            raise ValueError(preflight.cannot_listen(error, settings)) from error

    async def _credentials(self, settings: Settings) -> Credentials:
        if settings.bootstrap_kubeconfig is not None:
            bootstrap, node = settings.bootstrap_kubeconfig, settings.node
            self._node_certificate = NodeCertificate(bootstrap, node, settings.state_dir)
            return self._node_certificate.credentials
        credentials = await asyncio.to_thread(preflight.credentials_of, settings)
        if credentials.plugin is not None:
            provided = PluginCredentials(credentials, credentials.plugin, self._link.refused)
            await provided.load()
            self._run("credentials of the exec plugin", provided.run())
        return credentials

    async def _open_copies(self, settings: Settings) -> None:
        if settings.mode == "edge":
            self._offline = Offline(settings.state_dir / "cache")
            await self._offline.open()

    async def _make_certificate(self, settings: Settings) -> None:
        if not settings.tls_port:
            return
        if settings.tls_cert is not None and settings.tls_key is not None:
            files = ServingCertificate(settings.tls_cert, settings.tls_key)
            self._local = lambda: files
            return
        self._certificate = OwnCertificate(settings.state_dir / "pki")
        self._local = self._certificate.current
        await asyncio.to_thread(self._certificate.sign, served_addresses(settings))
        self._run("certificate of the TLS port", self._certificate.run())

    def _clients(self) -> Clients:
        """The clients of the hub's own requests: all share connections, probes too."""
        traffic, records = self._traffic.counts, self._records
        lent: Session = OwnRequests(self._link, CredentialSource.HUB, traffic, records)
        if self._node_certificate is not None:
            lent = IdentifiedSession(lent, self._node_certificate.known)
        return Clients(lent, OwnRequests(self._link, CredentialSource.OWN, traffic, records))

    def _ask_for_certificates(self, settings: Settings, credentials: Credentials, clients: Clients) -> None:
        """Request the certificates that the hub needs: its own identity, and the TLS port's.

        Until pods can verify the TLS port, filters do not point them at it.
        """
        changed = self._link.cloud.changed
        if self._node_certificate is not None:
            self._run("certificate of this node", self._node_certificate.run(clients, changed))
        if self._local is None:
            return
        certificate = None
        if settings.tls_signer == "cluster" and settings.tls_cert is None:
            file = settings.state_dir / CLUSTER_FILE
            certificate = serving_certificate_of(
                *("TLS", settings.node, clients.hub, file, changed),
                lambda: certified_addresses(self._options.settings),
            )
            certificate.want(True)
            certificate.load()
            self._run("the cluster's certificate of the TLS port", certificate.run(self._point_pods))
        self._shown = TlsPortCertificate(self._local, certificate)
        self._request.identity.serve_with(credentials, self._shown)
        metrics.watch_expiry("serving", self._shown.expiry)
        self._point_pods()

    def _point_pods(self) -> None:
        """Pass the addresses at which pods can verify the hub to the filters."""
        if self._parts is None:
            return
        address = hub_address(self._options.settings)
        hosts = self._shown.trusted_hosts(address.hosts) if self._shown is not None else address.hosts
        self._parts.inputs.move_hub(address._replace(hosts=hosts))

    def _waits_for(self) -> str:
        return self._node_certificate.why_unknown if self._node_certificate is not None else ""

    async def _make_pod_addresses(self, addresses: Sequence[str]) -> None:
        name = await asyncio.to_thread(pod_interface.ensure, addresses)
        logger.info("pods reach the hub at %s on %s", ", ".join(addresses), name)
        self._run("addresses for pods", pod_interface.maintain(addresses))

    def _claim_folder(self, settings: Settings, owner: FolderOwner) -> None:
        has_pki = settings.bootstrap_kubeconfig or (settings.tls_cert is None and settings.tls_port)
        if settings.mode != "edge" and not has_pki:
            return  # nothing is kept
        self._folder = StateFolder(settings.state_dir)
        try:
            self._folder.claim(owner)
        except OSError as error:
            logger.error(
                "%s cannot be written (%s): the hub runs on, but its data does not survive a restart",
                *(self._options.as_typed(f"hub_state_dir {settings.state_dir}"), error.strerror),
            )

    def _log_link(self, cloud: Cloud) -> LinkState:
        outage_source = (self._offline.waiting, "copies") if self._offline is not None else (int, "memory")
        log = LinkLog(cloud, cloud.changed, *outage_source)
        self._run("log of the link", log.run())
        return log.state

    async def _say_ready(self, parts: Parts) -> None:
        """Notify systemd, whose unit of kubelet waits for the hub's, and the log. kubelet retries at a hub without an
        identity."""
        self._run("watchdog of the service manager", service_manager.stay_alive())
        certificate = self._node_certificate
        if certificate is None or certificate.known.is_set():
            service_manager.notify(service_manager.READY)
        else:
            status = f"{service_manager.STATUS}{certificate.why_unknown}"
            service_manager.notify(f"{service_manager.READY}\n{status}")
            await certificate.known.wait()
            service_manager.notify(service_manager.STATUS)
        if self._pool is not None:
            # The peer port opens beside the others, so they come first.
            self._run("pool", self._pool.run())
        await parts.rules.known()
        logger.info("ready")

    def done(self) -> None:
        self._log.detach()
        if handed_sockets.handed.addresses:
            stop_accepting()
            handed_sockets.handed.close()
        parts = self._parts
        made = (parts.inputs, self._offline, parts.sources) if parts else (self._offline,)
        for part in (self._pool, *made, self._admin):
            if part is not None:
                part.close()
        for task in self._tasks:
            task.cancel()
        self._link.close()
        if self._folder is not None:
            self._folder.release()
        if parts is not None:
            service_manager.notify(service_manager.STOPPING)
            logger.info("the hub stops")

    def _build(
        self,
        settings: Settings,
        credentials: Credentials,
        cloud: Cloud,
        link: LinkState,
        modules: FilterModules,
    ) -> Parts:
        self._link.start(cloud, credentials, KubeletAccess.of(settings.node, *settings.kubelet_files))
        clients = self._clients()
        parts = self._parts = make_parts(
            *(settings, clients, cloud, self._link.confirm, self._offline),
            modules.filters,
            observed_events(self._traffic.observations.add),
        )
        tell_log_and_terminal(self._traffic.observations, settings)
        parts.rules.listen(self._request.router.rules_changed)
        parts.sources.on_restore.append(self._request.router.restored)
        parts.sources.idling.relayed_at = lambda: self._link.relayed_at
        self._link.start_probes(clients.hub)
        self._ask_for_certificates(settings, credentials, clients)
        self._link.drills.are_allowed |= settings.allow_drills
        if peer_spec(settings):
            self._join_pool(settings, credentials, clients, parts)
        elif settings.mode == "edge":
            self._run("announcement of no peer port", announce_no_port(settings, clients.hub))
        self._request.router.start(router_parts(settings, parts, self._offline, self._pool, self._waits_for))
        if settings.leaders:
            self._run("rules without a cloud", parts.rules.begin_without_cloud(lambda: not cloud.is_up))
        self._run("events about bad rules", parts.events.run())
        self._run("files of filters", modules.follow(parts.rules.use))
        self._run("reflectors after an outage", end_delays(cloud, parts.sources))
        if settings.local_health:
            from addons.inputs.local_health import LocalHealthSource  # noqa: PLC0415 - brings aiohttp's client

            url, interval = settings.local_health, settings.local_health_interval
            self._run("local health", LocalHealthSource(url, interval, parts.inputs.local_health).run())
        hub = RunningHub(
            *(settings, cloud, parts.sources, parts.inputs, parts.rules, self._offline),
            modules=modules,
            drills=self._link.drills,
            client=clients.hub,
            own_requests=self._records,
            traffic=self._traffic.counts,
            observations=self._traffic.observations,
            link=link,
            log=self._log,
            pool=self._pool,
            closed=lambda: self._listeners.closed() + (self._pool.closed() if self._pool else []),
            waits_for=self._waits_for,
            unfit=lambda: self._options.as_typed(why_unfit(settings, credentials, parts.inputs, cloud)),
            web_address=self._console.web_address,
        )
        self._console.start(hub)
        self._run("status for the fleet", tell_fleet(hub))
        self._run("budget of the link", tell_link_budget(hub, clients.hub))
        if settings.admin_port:
            self._admin = AdminPort(settings)
            self._run("admin server", self._admin.serve(hub, self._console.attachments))
        return parts

    def _join_pool(
        self, settings: Settings, credentials: Credentials, clients: Clients, parts: Parts
    ) -> None:
        pool = self._pool = join_pool(
            settings,
            credentials,
            clients.hub,
            (parts.inputs, parts.sources, parts.serving, parts.rules),
            self._link,
            self._open_peer_port,
            close_client,
            self._offline.discovered if self._offline is not None else None,
        )
        if self._offline is not None:
            self._offline.follow(pool.selector.leader)
        self._request.identity.serve_peers(pool.port.admission)
        self._request.egress.lend(pool.port.lent)

    async def _open_peer_port(self, wanted: bool) -> None:
        """Open or close the peer port beside the other listeners. OSError, in the operator's words, where it cannot."""
        settings = self._options.settings
        others = listener_specs(settings)
        try:
            await self._listeners.open([*others, *([peer_spec(settings)] if wanted else [])])
        except OSError as error:
            await self._listeners.open(others)
            why = self._options.as_typed(preflight.cannot_listen(error, settings))
            raise OSError(error.errno, why) from error

    def _run(self, name: str, work: Coroutine[None, None, None]) -> None:
        self._tasks.append(background(work, name))
