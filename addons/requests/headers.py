"""Names of the headers that hubs of a pool send each other."""

from __future__ import annotations

AGE_HEADER = "x-edgehub-age"
"""On answers of the peer port: seconds since the leader that answers lost the cloud, 0 while it has the cloud."""
PEER_HEADER = "x-edgehub-peer"
"""On a follower's probe of a leader: the address at which the follower's own peer port is open."""
SHARES_HEADER = "x-edgehub-shares"
"""On answers of the peer port: the resources that this leader serves besides the three of every leader, as
`resource.group,…`. A YurtHub and an older hub refuse all others, and send no such header."""
DEPUTIES_HEADER = "x-edgehub-deputies"
"""On answers of the peer port: the deputies of the leader that answers, as `node/address,…`."""
LENDS_HEADER = "x-edgehub-lends"
"""On a follower's probe of a leader: the follower has a link to the cloud to lend. Any value."""
LENDERS_HEADER = "x-edgehub-lenders"
"""On answers of the peer port: the followers that have such a link, as `node/address,…`."""
