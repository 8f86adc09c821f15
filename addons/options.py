"""The hub's options in mitmproxy: declared here, read here, and handed to the other addons as one `Settings`."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from mitmproxy import ctx, exceptions
from mitmproxy.addonmanager import Loader

from addons.settings import Settings, parse_settings

logger = logging.getLogger(__name__)

OPTIONS: tuple[tuple[str, type, Any, str], ...] = (
    ("server", str, "", "URLs of the kube-apiserver, separated by commas. Default: the kubeconfig's."),
    (
        "kubeconfig",
        str,
        "",
        "Kubeconfig of this node: the cloud's CA, and the identity that components of the node go out with.",
    ),
    (
        "bootstrap_kubeconfig",
        str,
        "",
        "Kubeconfig with a bootstrap token, in place of hub_kubeconfig: the hub asks the cluster for a client "
        "certificate of this node, keeps it in the state dir, and renews it.",
    ),
    ("node", str, os.uname().nodename, "Name of this node."),
    ("pool", str, "", "Node pool of this node. Default: the node's label apps.openyurt.io/nodepool."),
    (
        "state_dir",
        str,
        "/var/lib/edgehub",
        "Folder for copies and the CA of the TLS port, which outlive a restart. The hub makes it for its user alone.",
    ),
    (
        "mode",
        str,
        "edge",
        "edge, or cloud: keeps nothing on disk, and switches off the filters that make no sense in the cloud.",
    ),
    ("listen", str, "127.0.0.1", "IP address of the listeners for this node."),
    ("port", int, 10261, "Port for node components, plain HTTP. 0: off."),
    ("tls_port", int, 10268, "Port for pods, TLS. 0: off."),
    (
        "peer_port",
        int,
        10269,
        "Port at which the hubs of a pool read from each other, the same on all nodes of the pool. It opens when the "
        "pool elects leaders. 0: off, and the hub reads everything from the cloud itself.",
    ),
    ("peer_address", str, "", "IP address of the peer port. Default: every address of this node."),
    (
        "peer_cert",
        str,
        "",
        "Certificate of the peer port, of the cluster's CA and for this node. Default: asked of the cluster by a "
        "CertificateSigningRequest.",
    ),
    ("peer_key", str, "", "Key of hub_peer_cert."),
    (
        "peer_clients",
        str,
        "pool",
        "Whom the peer port serves: pool, the nodes of this pool; nodes, all nodes of the cluster, as a relay in the "
        "cloud.",
    ),
    (
        "leaders",
        str,
        "",
        "Leaders of the pool to begin with, NODE/ADDRESS,…, for a node without a cloud and without copies. They count "
        "until the hub has read its pool's ConfigMap.",
    ),
    (
        "relay",
        str,
        "",
        "Relays, https://host:port,…, from which the hub reads what pools share. Default: those that the pool's "
        "ConfigMap names.",
    ),
    (
        "admin_port",
        int,
        10267,
        "Port of /healthz, /readyz, /metrics and /debug, on the listen address. 0: off.",
    ),
    (
        "pod_address",
        str,
        "",
        "IP address (or two, one per family) that filters write for pods. auto: the hub makes the interface edgehub0 "
        "with 169.254.2.1, or with the addresses behind auto, and listens there for pods. Default: hub_listen.",
    ),
    (
        "plain_users",
        str,
        "",
        "Users of this node, by name or id and separated by commas, who may use the plain port. Default: every one, "
        "and each can do there what this node can.",
    ),
    (
        "allowed_hosts",
        str,
        "",
        "Names, separated by commas, by which clients may call the plain port and the admin port besides localhost "
        "and IP addresses. All others are refused, so that no web page can use them (DNS rebinding).",
    ),
    (
        "tls_cert",
        str,
        "",
        "Certificate of the TLS port. Default: made at first start by a CA in the state dir.",
    ),
    ("tls_key", str, "", "Key of hub_tls_cert."),
    (
        "tls_signer",
        str,
        "local",
        "Who signs the TLS port's certificate without hub_tls_cert: local, the hub's own CA, or cluster, so that pods "
        "trust the port at the node's addresses and hub_pod_address by the ca.crt that they have.",
    ),
    ("namespace", str, "kube-system", "Namespace of the rules ConfigMap."),
    ("configmap", str, "yurt-hub-cfg", "Name of the rules ConfigMap."),
    ("server_order", str, "round-robin", "round-robin, or priority: the first server that is up, as listed."),
    ("disabled_filters", str, "", "Filters that never apply, whatever the rules say, separated by commas."),
    (
        "filter_module",
        str,
        "",
        "Python files, separated by commas, with filters that are not the hub's. Their code runs as the hub.",
    ),
    ("topology_order", str, "any", "Several topologyKeys: any of them, or preferred: in their order."),
    (
        "local_endpoint",
        str,
        "",
        "IP address (or two, one per family) that the endpoints of default/kubernetes become for kube-proxy, "
        "whatever their annotations say. Default: as the annotations say.",
    ),
    ("local_port", int, 0, "Port of hub_local_endpoint. 0: hub_tls_port."),
    (
        "local_health",
        str,
        "",
        "URL of a health service of the site, which answers with JSON by node name or IP address. Default: none.",
    ),
    (
        "local_health_interval",
        int,
        30,
        "Seconds between requests to hub_local_health. After three without an answer no node is unhealthy.",
    ),
    ("wait", int, 10, "Seconds a request waits for rules or a first copy before it gets a 503."),
    ("idle", int, 300, "Seconds after its last user when a source stops."),
    (
        "review_max_age",
        int,
        86400,
        "Seconds without a cloud for which the cloud's last answer about a pod's token still counts.",
    ),
    (
        "keep_days",
        int,
        14,
        "Days after its last use when a copy is deleted from disk; never while the cloud is away.",
    ),
    (
        "allow_drills",
        bool,
        False,
        "`edgehub link` may take the link to the cloud away for some minutes, or slow it down. An interface allows it, "
        "too.",
    ),
    ("show_secrets", bool, False, "Interfaces show the values of Secrets, which they hide else."),
)
"""Name without `hub_`, type, default, help; the command line's flags are made of the same table."""


def as_flags(text: str) -> str:
    """A message about options, in the flags of `edgehub`: `hub_tls_cert` is `--tls-cert`."""
    return re.sub(r"\bhub_[a-z_]+", lambda found: "--" + found[0][4:].replace("_", "-"), text)


class UnknownOptionError(ValueError):
    """An option of a name that the hub does not have."""


def refuse_unknown(names: Iterable[str]) -> None:
    """UnknownOptionError when one of these names of options is meant for the hub, which has no such option."""
    known = [f"hub_{name}" for name, *_ in OPTIONS]
    for name in names:
        if name.startswith("hub_") and name not in known:
            nearest = get_close_matches(name, known, n=1)
            raise UnknownOptionError(
                f"there is no option {name}" + (f": is it {nearest[0]}?" if nearest else "")
            )


class Options:
    """Reads all hub_ options when one changes. A bad value is refused and the old settings stay in force."""

    name = "edgehub-options"

    settings: Settings
    """The settings in force; not there before mitmproxy has configured the addons."""
    are_flags = False
    """Whether the options were typed as flags of `edgehub`, whose words messages then use."""

    def as_typed(self, text: str) -> str:
        """A message about options in the words of whoever started the hub: flags, or options of mitmdump."""
        return as_flags(text) if self.are_flags else text

    def load(self, loader: Loader) -> None:
        # mitmproxy would open its listeners before the hub can answer; the last addon opens them.
        loader.master.options.update(server=False)
        for name, typespec, default, text in OPTIONS:
            loader.add_option(f"hub_{name}", typespec, default, text)

    def configure(self, updated: set[str]) -> None:
        if not any(name.startswith("hub_") for name in updated):
            return
        try:
            refuse_unknown(ctx.options.deferred)
            settings = parse_settings({name: getattr(ctx.options, f"hub_{name}") for name, *_ in OPTIONS})
        except ValueError as error:
            if not hasattr(self, "settings") and ctx.master.addons.get("scriptloader") is not None:
                # mitmproxy shows a script's error with its traceback, which says nothing to an operator.
                logger.critical("the hub cannot start: %s", self.as_typed(str(error)))
                raise SystemExit(1) from None
            raise exceptions.OptionsError(str(error)) from error
        self.settings = settings
        ctx.options.update(
            # What the chain needs, whoever starts it: no request may leave before an addon has said where to, and
            # a quiet watch or exec (kubelet: 4 h) must not be taken for dead.
            connection_strategy="lazy",
            keep_host_header=True,
            tcp_timeout=5 * 3600,
            # An upgraded connection passes through as bytes: mitmproxy collects each WebSocket message to its end.
            websocket=False,
        )
        if "onboarding" in ctx.options:
            ctx.options.update(onboarding=False)
