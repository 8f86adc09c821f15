"""This hub as the other hubs of its pool know it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from addons.pool.deputies import ANY_ADDRESS
from kube.http.kubeconfig import NO_CREDENTIALS, Credentials


class OwnPeer(NamedTuple):
    """This hub's node and peer port, and what it gives other hubs and takes from them."""

    node: str
    port: int
    """That of all hubs of a pool."""
    address: str = ANY_ADDRESS
    """That of this hub's peer port."""
    credentials: Credentials = NO_CREDENTIALS
    """Shown to other hubs."""
    lends: Callable[[], bool] = lambda: False
    """Whether it has a link to lend now."""
    borrows: bool = False
    """Whether it may borrow a link."""

    @property
    def can_follow(self) -> bool:
        """Whether it has a client certificate, which leaders and relays ask for."""
        return bool(self.credentials.certificate.read())
