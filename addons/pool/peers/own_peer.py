"""This hub's properties as a peer of the other hubs of its pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from addons.pool.deputies import ANY_ADDRESS
from kube.http.kubeconfig import NO_CREDENTIALS, Credentials


class OwnPeer(NamedTuple):
    """This hub's node, its peer port, and whether it lends and borrows links."""

    node: str
    port: int
    """The peer port that all hubs of a pool use."""
    address: str = ANY_ADDRESS
    """The address of this hub's peer port."""
    credentials: Credentials = NO_CREDENTIALS
    """The credentials that this hub presents to other hubs."""
    lends: Callable[[], bool] = lambda: False
    """Returns whether this hub can lend its link now."""
    borrows: bool = False
    """Whether this hub may borrow a link."""

    @property
    def can_follow(self) -> bool:
        """Whether this hub has a client certificate, which leaders and relays require."""
        return bool(self.credentials.user.certificate.read())
