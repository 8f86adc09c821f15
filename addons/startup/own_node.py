"""Checks that the hub runs under its node's name, by its identity and by the cloud's Node.

A hub with a wrong name finds no Node, pool or labels, so its filters would drop nothing. It still answers: kubelet
registers its Node through the hub.
"""

from __future__ import annotations

from cryptography import x509

from addons.certificates.client_certificates import text_of_node
from addons.inputs.filter_inputs import FilterInputs
from addons.inputs.input_sources import InputKind
from addons.link.health import Cloud
from addons.settings import Settings
from kube.http.kubeconfig import Credentials
from kube.peers import NODE_PREFIX, is_node_name


def node_in(credentials: Credentials) -> str:
    """Return the node that the certificate of these credentials names; "" for a token, a user, or no credentials.

    The name may be none that a Node can have.
    """
    try:
        leaf, *_ = x509.load_pem_x509_certificates(credentials.user.certificate.read())
    except (OSError, ValueError):
        return ""  # unusable files are reported elsewhere
    return text_of_node(leaf)


def of_another(settings: Settings, credentials: Credentials) -> str:
    """Return the error if the identity is that of another node than `hub_node`; "" otherwise, and in mode cloud."""
    named = node_in(credentials)
    if settings.mode != "edge" or named in ("", settings.node):
        return ""
    if not is_node_name(named):
        return (
            f"the identity is {NODE_PREFIX}{named}, and no Node can be called {named}, so that the cloud gives it no "
            f"node's rights: names are case sensitive, and lower case. Give hub_kubeconfig that of {settings.node}"
        )
    return (
        f"the identity is node {named}'s, and hub_node is {settings.node}: give hub_node {named}, or hub_kubeconfig "
        f"that of {settings.node}"
    )


def why_unfit(settings: Settings, credentials: Credentials, inputs: FilterInputs, cloud: Cloud) -> str:
    """Return why the hub does not match its node; "" if it does, or while the cloud has not answered."""
    if settings.mode != "edge":
        return ""
    if why := of_another(settings, credentials):
        return why
    own = inputs.input(InputKind.OWN_NODE)
    if not own.is_known:
        waits = cloud.is_up and not own.is_refused
        return f"the Node {settings.node} is not known yet" if waits else ""
    if own.source.store.get(("", settings.node)) is not None:
        return ""
    return (
        f"the cloud has no Node {settings.node}: kubelet registers it through this hub; if kubelet calls it otherwise, "
        "give hub_node that name"
    )
