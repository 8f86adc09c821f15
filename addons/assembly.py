"""The last addon: checks the settings, starts the parts, opens the listeners when the hub can answer, stops it all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

from addons.certificates.node_certificate import IdentifiedSession, NodeCertificate, NodeIdentity
from addons.certificates.requested_certificate import serving_certificate_of
from addons.certificates.serving_certificate import Certificate, ServingCertificate
from addons.certificates.tls_port_certificate import FILE as CLUSTER_FILE
from addons.certificates.tls_port_certificate import OwnCertificate, TlsPortCertificate
from addons.console import Console
from addons.egress import Egress
from addons.identity import Identity
from addons.inputs.filter_inputs import FilterInputs
from addons.link.cloud_access import CloudAccess
from addons.link.health import Cloud
from addons.link.identities.kubelet import KubeletAccess
from addons.link.identities.plugin_credentials import PluginCredentials
from addons.link.link import UpstreamManager
from addons.link.own_requests import OwnRequests
from addons.link.servers import Server, parse_server
from addons.offline.offline_tables import OfflineTables
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
from addons.telemetry.log import print_line_by_line, quieten_libraries
from addons.ui.admin_port import AdminPort
from addons.ui.hub_records import Records
from addons.ui.link_log import LinkLog
from addons.ui.live.observed_request import log_requests
from addons.ui.live.own_reports import publish_fleet_status, track_link_budget
from addons.ui.running_hub import Readiness, RunningHub
from addons.views.observed_events import observed_events
from kube.concurrency.notifier import Notifier
from kube.http.client import Client
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
        records: Records,
        console: Console,
    ) -> None:
        self._options = options
        self._request = request
        self._refused = Notifier()
        """Notified when the cloud refuses the node's identity."""
        self._records = records
        self._console = console
        self._listeners = listeners
        self._moved: list[Callable[[], None]] = []
        """Called when the address for pods has changed."""
        self._made = ExitStack()
        """Closes the hub's objects in reverse order of construction, because later ones use earlier ones."""

    def configure(self, updated: set[str]) -> None:
        """Apply changed options. A new address for pods, set in an interface for example, changes open watches."""
        if "hub_pod_address" in updated:
            for move in self._moved:
                move()

    def running(self) -> None:
        """Start. mitmproxy has loaded every addon, and opens no listener by itself."""
        self._made.callback(asyncio.create_task(self._open(), name="start").cancel)

    async def _open(self) -> None:
        """Assemble the hub, then open its ports, so that no request comes before the hub can answer."""
        await asyncio.sleep(0)  # an exit within `running` itself would be logged as a failed task
        try:
            identity, hub = await self._start(self._options.settings)
        except (ValueError, OSError) as error:
            logger.critical("the hub cannot start: %s", self._options.as_typed(str(error)))
            raise SystemExit(1) from None
        except Exception as error:
            logger.critical("the hub cannot start", exc_info=error)
            raise SystemExit(1) from error
        self._run("watchdog of the service manager", service_manager.send_watchdog_messages())
        # kubelet's unit waits for the hub's, and retries at a hub without an identity.
        certificate = identity.certificate
        if certificate is None or certificate.known.is_set():
            service_manager.notify(service_manager.READY)
        else:
            await service_manager.ready_without(certificate.why_unknown, certificate.known)
        if hub.pool is not None:
            # The peer port opens beside the others, so they come first.
            self._run("pool", hub.pool.run())
        await hub.rules.known()
        logger.info("ready")

    async def _start(self, settings: Settings) -> tuple[NodeIdentity, RunningHub]:
        self._records.log.attach()
        self._made.callback(self._records.log.detach)
        quieten_libraries()
        print_line_by_line()
        handed_sockets.handed.adopt_sockets()
        self._made.callback(handed_sockets.handed.close)
        identity = await self._identity(settings)
        credentials = identity.credentials
        servers = settings.servers or (parse_server(credentials.cluster.server),)
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
        # Each waits for the disk at a first start, so they run concurrently.
        tables, local = await asyncio.gather(self._open_tables(settings), self._local_certificate(settings))
        link, cloud = self._open_link(settings, servers, identity)
        parts = self._parts(settings, cloud, tables, modules)
        parts.sources.idling.relayed_at = lambda: link.relayed_at
        if identity.certificate is not None:
            self._run(
                "certificate of this node", identity.certificate.run(cloud.clients, cloud.servers.changed)
            )
        if local is not None:
            self._show_certificate(credentials, cloud, local, parts.inputs)
        pool = self._pool(credentials, cloud.clients.hub, parts, link)
        if parts.offline is not None:
            parts.offline.discover(pool.selector.leader if pool is not None else None)
        self._request.egress.start(link, pool.port.lent if pool is not None else None)
        self._request.router.start(router_parts(settings, parts, pool, lambda: identity.why_unknown))
        hub = self._running_hub(settings, identity, cloud, parts, modules, pool)
        try:
            self._show(hub, cloud.clients.hub)
            await self._listeners.open(listener_specs(settings))
        except OSError as error:
            raise ValueError(preflight.cannot_listen(error, settings)) from error
        self._made.callback(_log_end)
        return identity, hub

    async def _identity(self, settings: Settings) -> NodeIdentity:
        if settings.bootstrap_kubeconfig is not None:
            bootstrap, node = settings.bootstrap_kubeconfig, settings.node
            certificate = NodeCertificate(bootstrap, node, settings.state_dir)
            return NodeIdentity(certificate.credentials, certificate)
        credentials = await asyncio.to_thread(preflight.credentials_of, settings)
        if (user := credentials.user).plugin is not None:
            provided = PluginCredentials(user, user.plugin, self._refused)
            await provided.load()
            self._run("credentials of the exec plugin", provided.run())
        return NodeIdentity(credentials)

    async def _open_tables(self, settings: Settings) -> OfflineTables | None:
        if settings.mode != "edge":
            return None
        tables = OfflineTables.at(settings.state_dir / "cache")
        self._made.callback(tables.close)
        await tables.open()
        return tables

    async def _local_certificate(self, settings: Settings) -> Callable[[], Certificate] | None:
        """The certificate of the TLS port where the cluster has not signed one."""
        if not settings.tls_port:
            return None
        if settings.tls_cert is not None and settings.tls_key is not None:
            files = ServingCertificate(settings.tls_cert, settings.tls_key)
            return lambda: files
        certificate = OwnCertificate(settings.state_dir / "pki")
        await asyncio.to_thread(certificate.sign, served_addresses(settings))
        self._moved.append(lambda: certificate.move(served_addresses(self._options.settings)))
        self._run("certificate of the TLS port", certificate.run())
        return certificate.current

    def _open_link(
        self, settings: Settings, servers: Sequence[Server], identity: NodeIdentity
    ) -> tuple[UpstreamManager, CloudAccess]:
        """The servers, and the clients of the hub's own requests: all share connections, probes too."""
        times = settings.probe_interval, settings.probe_timeout
        cloud = Cloud.for_servers(servers, settings.uplinks, settings.server_order, *times)
        kubelet = KubeletAccess.of(settings.node, *settings.kubelet_files)
        link = UpstreamManager(
            cloud, identity.credentials, kubelet, self._console.drills, self._refused.notify
        )
        self._made.callback(link.close)
        noted = self._records.traffic, self._records.own_requests
        lent: Session = OwnRequests(link, CredentialSource.HUB, *noted)
        if identity.certificate is not None:
            lent = IdentifiedSession(lent, identity.certificate.known)
        clients = Clients(lent, OwnRequests(link, CredentialSource.OWN, *noted))
        link.start_probes(clients.hub)
        return link, CloudAccess(cloud, clients, link.confirm)

    def _parts(
        self, settings: Settings, cloud: CloudAccess, tables: OfflineTables | None, modules: FilterModules
    ) -> Parts:
        noted = observed_events(self._records.observations.add)
        parts = make_parts(settings, cloud, tables, modules.filters, noted)
        for part in (parts.sources, parts.inputs, parts.offline):
            if part is not None:
                self._made.callback(part.close)
        log_requests(self._records.observations, settings)
        parts.rules.listen(self._request.router.rules_changed)
        parts.sources.on_restore.append(self._request.router.restored)
        if settings.leaders:
            self._run(
                "rules without a cloud", parts.rules.begin_without_cloud(lambda: not cloud.servers.is_up)
            )
        self._run("events about bad rules", parts.events.run())
        self._run("files of filters", modules.follow(parts.rules.use))
        self._run("reflectors after an outage", end_delays(cloud.servers, parts.sources))
        if settings.local_health:
            from addons.inputs.local_health import LocalHealthSource  # noqa: PLC0415 - brings aiohttp's client

            url, interval = settings.local_health, settings.local_health_interval
            self._run("local health", LocalHealthSource(url, interval, parts.inputs.local_health).run())
        return parts

    def _show_certificate(
        self,
        credentials: Credentials,
        cloud: CloudAccess,
        local: Callable[[], Certificate],
        inputs: FilterInputs,
    ) -> None:
        """Serve the TLS port. Until pods can verify it, filters do not point them at it."""
        settings, certificate = self._options.settings, None
        if settings.tls_signer == "cluster" and settings.tls_cert is None:
            file = settings.state_dir / CLUSTER_FILE
            certificate = serving_certificate_of(
                *("TLS", settings.node, cloud.clients.hub, file, cloud.servers.changed),
                lambda: certified_addresses(self._options.settings),
            )
            certificate.want(True)
            certificate.load()
        shown = TlsPortCertificate(local, certificate)

        def show_addresses() -> None:
            """Pass the addresses at which pods can verify the hub to the filters."""
            address = hub_address(self._options.settings)
            inputs.move_hub(address._replace(hosts=shown.trusted_hosts(address.hosts)))

        self._moved.append(show_addresses)
        if certificate is not None:
            self._run("the cluster's certificate of the TLS port", certificate.run(show_addresses))
        self._request.identity.serve_with(credentials, shown)
        metrics.watch_expiry("serving", shown.expiry)
        show_addresses()

    async def _make_pod_addresses(self, addresses: Sequence[str]) -> None:
        name = await asyncio.to_thread(pod_interface.ensure, addresses)
        logger.info("pods reach the hub at %s on %s", ", ".join(addresses), name)
        self._run("addresses for pods", pod_interface.maintain(addresses))

    def _claim_folder(self, settings: Settings, owner: FolderOwner) -> None:
        has_pki = settings.bootstrap_kubeconfig or (settings.tls_cert is None and settings.tls_port)
        if settings.mode != "edge" and not has_pki:
            return  # nothing is kept
        folder = StateFolder(settings.state_dir)
        self._made.callback(folder.release)
        try:
            folder.claim(owner)
        except OSError as error:
            logger.error(
                "%s cannot be written (%s): the hub runs on, but its data does not survive a restart",
                *(self._options.as_typed(f"hub_state_dir {settings.state_dir}"), error.strerror),
            )

    def done(self) -> None:
        if handed_sockets.handed.addresses:
            stop_accepting()
        self._made.close()

    def _running_hub(
        self,
        settings: Settings,
        identity: NodeIdentity,
        cloud: CloudAccess,
        parts: Parts,
        modules: FilterModules,
        pool: Pool | None,
    ) -> RunningHub:
        unfit = partial(why_unfit, settings, identity.credentials, parts.inputs, cloud.servers)
        return RunningHub(
            *(settings, cloud.servers, parts.sources, parts.inputs, parts.rules, parts.offline),
            modules=modules,
            drills=self._console.drills,
            client=cloud.clients.hub,
            records=self._records,
            pool=pool,
            readiness=Readiness(
                lambda: self._listeners.closed() + (pool.closed() if pool is not None else []),
                lambda: identity.why_unknown,
                lambda: self._options.as_typed(unfit()),
            ),
            web_address=self._console.web_address,
        )

    def _show(self, hub: RunningHub, client: Client) -> None:
        """Show the hub to people and to the cloud. OSError where the admin port cannot be opened."""
        self._console.drills.are_allowed |= hub.settings.allow_drills
        self._console.start(hub)
        outage_source = (hub.offline.tables.waiting, "copies") if hub.offline is not None else (int, "memory")
        self._run("log of the link", LinkLog(hub.cloud, hub.records.link, *outage_source).run())
        self._run("status for the fleet", publish_fleet_status(hub))
        self._run("budget of the link", track_link_budget(hub, client))
        if hub.settings.admin_port:
            admin = AdminPort(hub.settings)
            self._made.callback(admin.close)
            self._run("admin server", admin.serve(hub, self._console.attachments))

    def _pool(
        self, credentials: Credentials, client: Client, parts: Parts, link: UpstreamManager
    ) -> Pool | None:
        settings = self._options.settings
        if not peer_spec(settings):
            if settings.mode == "edge":
                self._run("announcement of no peer port", announce_no_port(settings, client))
            return None
        pool = join_pool(
            settings,
            credentials,
            client,
            (parts.inputs, parts.sources, parts.serving, parts.rules),
            link,
            self._open_peer_port,
            close_client,
            parts.offline.discovered if parts.offline is not None else None,
        )
        self._made.callback(pool.close)
        self._request.identity.serve_peers(pool.port.admission)
        return pool

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
        self._made.callback(background(work, name).cancel)


def _log_end() -> None:
    service_manager.notify(service_manager.STOPPING)
    logger.info("the hub stops")
