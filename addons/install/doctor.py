"""`edgehub doctor`: finds problems that would break this node behind its hub, with a remedy for each."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import yaml

from addons.certificates.node_certificate import saved_credentials
from addons.install.changes import below
from addons.install.checks.cloud_checks import OwnNode, check_cloud
from addons.install.checks.filter_checks import check_filters
from addons.install.checks.findings import Finding, failed, has_failed, ok
from addons.install.checks.hub_checks import check_handshakes, is_running
from addons.install.checks.node_checks import (
    Program,
    check_address,
    check_asked,
    check_certificate,
    check_disk,
    check_distribution,
    check_ports,
    check_program,
    check_state_certificates,
)
from addons.install.install_spec import BOOTSTRAP_KUBECONFIG, KUBELET_KUBECONFIG, SOCKET_FILE, leads_to
from addons.settings import Settings
from kube.http.kubeconfig import load_kubeconfig, parse_kubeconfig
from kube.option import VERSION


def examine(
    root: Path,
    kubeconfig: Path,
    node: str,
    hub: Settings,
    bootstrap: str = "",
    *,
    program: Program | None = None,
    kubelet: Path = KUBELET_KUBECONFIG,
) -> Iterator[Finding]:
    """Yield the findings, each as soon as its check ends.

    `kubeconfig` is the hub's own, or the one from which it will be made. `bootstrap` is the text of a kubeconfig with a
    bootstrap token that will be written there. `program` is what the unit starts; None for a static pod. `kubelet` is
    kubelet's kubeconfig.
    """
    yield from check_distribution(root, kubelet, KUBELET_KUBECONFIG)
    yield check_program(program) if program is not None else ok("program", f"edgehub {VERSION}")
    held = {port for _, port in hub.early_listeners} if below(root, SOCKET_FILE).exists() else set()
    ports = {"--port": hub.port, "--tls-port": hub.tls_port, "--admin-port": hub.admin_port}
    is_hub_running = asyncio.run(is_running(hub))
    yield from check_ports(hub.listen, ports, is_hub_running, held)
    if hub.pod_address.makes and not is_hub_running:
        yield ok(
            "address", f"{', '.join(hub.pod_addresses)}: the hub gives itself the address when it starts"
        )
    elif hub.pod_address.addresses:
        yield from check_address(hub.pod_addresses)
    if is_hub_running:
        yield from asyncio.run(check_handshakes(hub))
    state = below(root, hub.state_dir.absolute())
    yield check_disk(state)
    yield from check_state_certificates(state, datetime.datetime.now(datetime.UTC))
    files = [below(root, module) if module.is_absolute() else module for module in hub.filter_modules]
    if finding := check_filters(files, sorted(hub.disabled_filters)):
        yield finding
    yield from _examine_identity(root, kubeconfig, node, hub, bootstrap, is_running=is_hub_running)


def _examine_identity(
    root: Path, kubeconfig: Path, node: str, hub: Settings, bootstrap: str, *, is_running: bool
) -> Iterator[Finding]:
    """Check the kubeconfig, its certificate, and the cloud's answers to both. The arguments are those of `examine`."""
    state = below(root, hub.state_dir.absolute())
    try:
        locate = partial(below, root)
        credentials = (
            parse_kubeconfig(yaml.safe_load(bootstrap), kubeconfig.parent, locate=locate)
            if bootstrap
            else load_kubeconfig(kubeconfig, locate=locate)
        )
        asks = bool(bootstrap) or kubeconfig == BOOTSTRAP_KUBECONFIG
        if asks:
            credentials = saved_credentials(credentials, state)
    except (ValueError, yaml.YAMLError) as error:
        yield failed("kubeconfig", str(error))
        return
    if leads_to(hub, credentials.cluster.server):
        yield failed(
            "kubeconfig", f"{kubeconfig} leads to the hub itself: give the hub one that leads to the cloud"
        )
        return
    if (plugin := credentials.user.plugin) is not None:
        yield failed(
            "kubeconfig",
            f"{kubeconfig} has an exec plugin ({plugin.command}), so it is no node's: name the node's own "
            "by --kubeconfig; for a hub in the foreground it is good",
        )
        return
    yield ok("kubeconfig", f"{kubeconfig}: {credentials.cluster.server}")
    renewer = "the hub" if asks else "kubelet"
    certificate = list(check_certificate(credentials, datetime.datetime.now(datetime.UTC), renewer))
    yield from certificate
    asks_for_serving = is_running and hub.tls_signer == "cluster" and not hub.tls_cert
    yield from check_asked(state, asks_for_identity=asks and not bootstrap, asks_for_serving=asks_for_serving)
    if asks and not credentials.user.certificate.read():
        yield from asyncio.run(check_cloud(credentials, None))
    elif not has_failed(certificate):
        own = OwnNode(node, (hub.namespace, hub.configmap), hub.port)
        yield from asyncio.run(check_cloud(credentials, own))
