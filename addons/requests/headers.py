"""Names of the headers that hubs of a pool send each other."""

from __future__ import annotations

AGE_HEADER = "x-edgehub-age"
"""On answers of the peer port: seconds since the leader that answers lost the cloud, 0 while it has the cloud."""
PEER_HEADER = "x-edgehub-peer"
"""On a follower's probe of a leader: the address at which the follower's own peer port is open."""
SHARES_HEADER = "x-edgehub-shares"
"""On answers of the peer port: what the leader that answers serves besides what all do, as
`resource.group,…`. A YurtHub and an older hub refuse all that, and say nothing."""
DEPUTIES_HEADER = "x-edgehub-deputies"
"""On answers of the peer port: the deputies of the leader that answers, as `node/address,…`."""
LENDS_HEADER = "x-edgehub-lends"
"""On a follower's probe of a leader: the follower has a way to the cloud to lend. Its value is of no matter."""
LENDERS_HEADER = "x-edgehub-lenders"
"""On answers of the peer port: the followers that have such a way, as `node/address,…`."""
